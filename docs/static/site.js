const root = document.currentScript.dataset.root;

// the search: the list of pages is loaded when the box is first used
const box = document.querySelector(".search input");
const list = document.querySelector(".search ol");

function load() {
  if (document.querySelector("script[data-pages]")) return;
  const script = document.createElement("script");
  script.src = `${root}/static/search.js`;
  script.dataset.pages = "";
  script.onload = show;
  document.head.append(script);
}

function score([title, address, text], words) {
  let total = address.startsWith("docs/") ? 25 : 0; // guides come first
  for (const word of words) {
    const inTitle = title.toLowerCase().includes(word);
    const count = text.toLowerCase().split(word).length - 1;
    if (!inTitle && !count) return 0;
    total += (inTitle ? 20 : 0) + Math.min(count, 10);
  }
  return total;
}

function around(text, word) {
  const at = Math.max(0, text.toLowerCase().indexOf(word) - 50);
  return text.slice(at, at + 130);
}

function show() {
  const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
  list.replaceChildren();
  list.hidden = !words.length || !window.pages;
  if (list.hidden) return;
  const scored = window.pages.map(page => [score(page, words), page]).filter(([value]) => value);
  scored.sort((a, b) => b[0] - a[0]);
  for (const [, [title, address, text]] of scored.slice(0, 12)) {
    const link = document.createElement("a");
    link.href = `${root}/${address}`;
    const excerpt = document.createElement("small");
    excerpt.textContent = around(text, words[0]);
    link.append(title, excerpt);
    const item = document.createElement("li");
    item.append(link);
    list.append(item);
  }
  if (!scored.length) {
    const item = document.createElement("li");
    item.textContent = "No page has all these words.";
    list.append(item);
  }
}

box.addEventListener("focus", load);
box.addEventListener("input", show);
document.addEventListener("keydown", event => {
  if (event.key === "Escape") list.hidden = true;
  if (event.key === "/" && document.activeElement === document.body) {
    event.preventDefault();
    box.focus();
  }
});

// the list of pages is folded on a narrow screen
if (window.matchMedia("(max-width: 800px)").matches) document.querySelector("nav details").open = false;

// figures are drawn when they come into view
const seen = new IntersectionObserver(
  entries => {
    for (const entry of entries.filter(entry => entry.isIntersecting)) {
      seen.unobserve(entry.target);
      const { data, layout } = JSON.parse(entry.target.querySelector("script").textContent);
      delete layout.width;
      window.Plotly.newPlot(entry.target, data, { ...layout, autosize: true }, { responsive: true, displaylogo: false });
    }
  },
  { rootMargin: "300px" },
);
for (const figure of document.querySelectorAll(".figure")) seen.observe(figure);
