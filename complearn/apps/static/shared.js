// What the apps use: elements, numbers as text, captions in colour, buffers, and the connection to the kernel.
// complearn.apps.widgets.join_script puts this file and an app's own into the one module that anywidget loads.

// An element with attributes, listeners (keys that start with "on") and children.
// Text enters the page as text and never as markup, because captions may hold anything.
export const h = (tag, attributes = {}, ...children) => {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== false && value != null) node.setAttribute(key, value === true ? "" : value);
  }
  // JupyterLab leaves the keys of such an element alone.
  if (node.matches("button, input, select, textarea, [tabindex]")) node.setAttribute("data-lm-suppress-shortcuts", "true");
  node.append(...present(children));
  return node;
};
const present = children => children.flat().filter(child => child != null && child !== false);
export const fill = (node, ...children) => node.replaceChildren(...present(children));

export const button = (label, onclick, attributes = {}) => h("button", { type: "button", onclick, ...attributes }, label);
export const toggle = (label, on, onclick, attributes = {}) => button(label, onclick, { "aria-pressed": String(on), ...attributes });
export const track = (share, kind = "") =>
  h("span", { class: "cl-track" }, h("i", { class: kind, style: `width:${(100 * Math.min(1, share)).toFixed(1)}%` }));

export const count = number => number.toLocaleString("en-US");
export const some = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
export const percent = share => {
  if (share === 0) return "0 %";
  return share < 0.0005 ? "< 0.1 %" : `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;
};

// A caption in pieces, [text, call] each: what call number k touched has its colour; an empty piece marks where something
// was put in or left out.
export const marked = pieces => pieces.map(([text, call]) => (call < 0 ? text : h("mark", { class: `cl-call-${call % 6}` }, text)));

// A tree whose rows grow upwards from the words: a constituent of height k stands k rows above them. Cells are
// [label, first word, the word after the last, height, ...]; `make` may draw them in another way.
export const drawTree = (node, words, cells, make = (cell, attributes) => h("span", attributes, cell[0])) => {
  const levels = Math.max(0, ...cells.map(([, , , height]) => height));
  const cell = each => {
    const [, start, stop, height] = each;
    const place = `grid-column: ${start + 1} / ${stop + 1}; grid-row: ${levels - height + 1}`;
    return make(each, { class: height > 1 ? "cl-phrase" : "cl-tag", style: place, title: words.slice(start, stop).join(" ") });
  };
  const word = (text, i) => h("b", { style: `grid-column: ${i + 1}; grid-row: ${levels + 1}` }, text);
  fill(node, cells.map(cell), words.map(word));
};

// A list that scrolls says so where it goes on below.
export const scrolling = node => {
  const mark = () => node.classList.toggle("cl-more", node.scrollHeight - node.clientHeight - node.scrollTop > 4);
  node.classList.add("cl-scroll");
  node.addEventListener("scroll", mark);
  new ResizeObserver(mark).observe(node);
  new MutationObserver(mark).observe(node, { childList: true });
  return node;
};

// Save a text as a file of the browser's user.
export const download = (name, text) => {
  const url = URL.createObjectURL(new Blob([text]));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
};

// Buffers arrive as DataViews into a larger message, at places that no array of wider numbers may start at: copy.
export const bytes = view => new Uint8Array(view.buffer ?? view, view.byteOffset ?? 0, view.byteLength);
export const numbers = (Kind, view) => new Kind(bytes(view).slice().buffer);
export const objectURL = view => URL.createObjectURL(new Blob([bytes(view)]));
// A picture of a message; its file is released once it is drawn.
export const picture = (view, alt) => {
  const url = objectURL(view);
  return h("img", { src: url, alt, draggable: "false", onload: () => URL.revokeObjectURL(url) });
};

// The line that reports long work, an error, or nothing.
export const statusLine = attributes => {
  const node = h("div", { class: "cl-status", ...attributes });
  node.report = (text, busy = false) => {
    node.textContent = text;
    node.classList.toggle("cl-busy", busy);
  };
  return node;
};

// Connect an app to the kernel's messages and to events of the window; returns the function that disconnects it.
// Events are taken before anyone else sees them: JupyterLab has uses of its own for Enter, arrows and letters.
export const connect = (app, model, listeners) => {
  const receive = (content, buffers) => app.receive(content, buffers ?? []);
  model.on("msg:custom", receive);
  for (const [name, listener] of Object.entries(listeners)) window.addEventListener(name, listener, true);
  app.send({ action: "connect" });
  return () => {
    model.off("msg:custom", receive);
    for (const [name, listener] of Object.entries(listeners)) window.removeEventListener(name, listener, true);
  };
};
