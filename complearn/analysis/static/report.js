const dark = window.matchMedia("(prefers-color-scheme: dark)");
function paint() {
  const ink = dark.matches ? "#ececf0" : "#1d1d1f";
  const line = dark.matches ? "#3a3a40" : "#e0e0e4";
  for (const figure of document.querySelectorAll(".plotly-graph-div")) {
    const change = { "font.color": ink };
    for (const name of Object.keys(figure.layout))
      if (/^[xy]axis/.test(name)) {
        change[`${name}.gridcolor`] = line;
        change[`${name}.color`] = ink;
      }
    (figure.layout.shapes || []).forEach((shape, k) => {
      if (shape.layer === "below") change[`shapes[${k}].line.color`] = line;
    });
    Plotly.relayout(figure, change);
  }
}
dark.addEventListener("change", paint);
window.addEventListener("load", paint);
window.addEventListener("beforeprint", () => {
  for (const part of document.querySelectorAll("details")) part.open = true;
});
for (const part of document.querySelectorAll("details"))
  part.addEventListener("toggle", () => {
    for (const figure of part.querySelectorAll(".plotly-graph-div")) Plotly.Plots.resize(figure);
  });
