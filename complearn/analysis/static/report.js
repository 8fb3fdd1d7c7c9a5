const dark = window.matchMedia("(prefers-color-scheme: dark)");
function paint() {
  const ink = dark.matches ? "#ececf0" : "#1d1d1f";
  const line = dark.matches ? "#3a3a40" : "#e0e0e4";
  const quiet = dark.matches ? "#a6a6ae" : "#555555";
  for (const figure of document.querySelectorAll(".plotly-graph-div")) {
    const change = { "font.color": ink };
    for (const name of Object.keys(figure.layout))
      if (/^[xy]axis/.test(name)) {
        change[`${name}.gridcolor`] = line;
        change[`${name}.color`] = ink;
      }
    (figure.layout.shapes || []).forEach((shape, k) => {
      change[`shapes[${k}].line.color`] = shape.layer === "below" ? line : quiet;
    });
    figure.quiet ??= (figure.layout.annotations || []).flatMap(({ font }, k) => (font?.color === "#555555" ? [k] : []));
    for (const k of figure.quiet) change[`annotations[${k}].font.color`] = quiet;
    Plotly.relayout(figure, change);
    // marks of chance and of blind baselines have the colour of quiet text, which the light page's is too dark for
    const blind = figure.data.flatMap(({ name }, k) => (name === "guessing" || name?.endsWith("(blind)") ? [k] : []));
    figure.black ??= figure.data.flatMap(({ marker }, k) => (marker?.color === "rgba(0,0,0,1)" ? [k] : []));
    const black = dark.matches ? ink : "rgba(0,0,0,1)";
    if (figure.black.length) Plotly.restyle(figure, { "marker.color": black, "error_x.color": black }, figure.black);
    if (blind.length) Plotly.restyle(figure, { "marker.color": quiet, "marker.line.color": quiet }, blind);
  }
}
dark.addEventListener("change", paint);
window.addEventListener("load", paint);
for (const name of document.querySelectorAll(".legend button"))
  name.addEventListener("click", () => {
    const isShown = name.getAttribute("aria-pressed") !== "true";
    name.setAttribute("aria-pressed", String(isShown));
    const figure = name.closest("figure").querySelector(".plotly-graph-div");
    Plotly.restyle(figure, { visible: isShown }, name.dataset.traces.split(" ").map(Number));
  });
window.addEventListener("beforeprint", () => {
  for (const part of document.querySelectorAll("details")) part.open = true;
});
for (const part of document.querySelectorAll("details"))
  part.addEventListener("toggle", () => {
    for (const figure of part.querySelectorAll(".plotly-graph-div")) Plotly.Plots.resize(figure);
  });
// A figure of pictures keeps its shape: the whole of it is made smaller, as long as its smallest text can be read.
const LEAST_TEXT = 10; // pixels
function fit() {
  for (const box of document.querySelectorAll(".scaled")) {
    const frame = box.parentElement;
    if (!frame.clientWidth) continue;
    const sizes = [...box.querySelectorAll("text")].map(text => parseFloat(getComputedStyle(text).fontSize));
    const least = Math.min(1, LEAST_TEXT / Math.min(...sizes, 12));
    box.style.zoom = Math.min(1, Math.max(least, frame.clientWidth / Number(box.dataset.width)));
  }
  // what is still too wide scrolls, with the keyboard too
  for (const box of document.querySelectorAll("figure, table, pre"))
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
}
window.addEventListener("resize", fit);
window.addEventListener("load", fit);
for (const part of document.querySelectorAll("details")) part.addEventListener("toggle", fit);
