// Maps of one model or two: what to show at the top, the maps, the legend, and the selected points as pictures or as a
// table. The maps are widgets of jupyter-scatter, shown inside this one. The kernel's side is
// complearn.apps.map.controller.
import { button, bytes, connect, count, download, fill, h, objectURL, picture, some, statusLine, toggle } from "./shared.js";

const METHODS = { pca: "principal components", umap: "UMAP" };
const TIPS = {
  pca: "the plane in which the points spread most; at once",
  umap: "near points stay near; takes a while the first time",
};

const frame = () => new Promise(requestAnimationFrame);

// "rgb(17, 17, 17)" as "#111111".
const hex = colour =>
  `#${(colour.match(/\d+/g) ?? [255, 255, 255])
    .slice(0, 3)
    .map(part => (+part).toString(16).padStart(2, "0"))
    .join("")}`;

// Whether this browser can draw the library's maps.
const hasWebGL = () => {
  try {
    return document.createElement("canvas").getContext("webgl") !== null;
  } catch {
    return false;
  }
};

// A lasso that is drawn over the maps. The library draws all points at each move of the mouse and again at the end, which
// takes most of a second for a million points without a GPU. Here the maps keep their picture from the first move until
// the selected points are on the screen; then the library draws once.
class Lasso {
  constructor() {
    this.waiting = new Map(); // canvas of a held map -> how to draw it
    this.watched = new Set(); // canvases
    this.line = null;
  }
  // Watch the map that the library draws into a host; it is made some frames after its element.
  async watch(host, isShown) {
    const withApi = () => [...host.querySelectorAll("div")].find(node => node.api);
    while (isShown() && !withApi()) await frame();
    if (!isShown()) return;
    const plot = withApi().api;
    const canvas = plot.get("canvas");
    const { renderer } = window.jupyterScatter;
    if (this.renderer !== renderer) this.holdDrawings(renderer);
    this.watched.add(canvas);
    canvas.addEventListener("mousedown", event => {
      if (event.button === 0 && plot.get("mouseMode") === "lasso") this.follow(event, host, canvas);
    });
  }
  forget() {
    this.release();
    this.watched.clear();
  }
  holdDrawings(renderer) {
    this.renderer = renderer;
    const draw = renderer.render;
    renderer.render = (work, canvas) => (this.waiting.has(canvas) ? this.waiting.set(canvas, work) : draw(work, canvas));
  }
  follow(begin, host, canvas) {
    const box = canvas.getBoundingClientRect();
    const points = [];
    const note = event => points.push(`${event.clientX - box.left},${event.clientY - box.top}`);
    const move = event => {
      if (!this.line) this.hold(host);
      note(event);
      this.line.firstChild.setAttribute("points", points.join(" "));
    };
    const end = () => {
      removeEventListener("mousemove", move);
      if (this.line) this.timer = setTimeout(() => this.release(), 1000); // the same points as before: no answer comes
    };
    note(begin);
    addEventListener("mousemove", move);
    addEventListener("mouseup", end, { once: true });
  }
  hold(host) {
    clearTimeout(this.timer);
    for (const canvas of this.watched) this.waiting.set(canvas, null);
    this.line = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    this.line.setAttribute("class", "cl-lasso");
    this.line.append(document.createElementNS("http://www.w3.org/2000/svg", "polygon"));
    host.querySelector("canvas").parentNode.append(this.line);
  }
  // What was put on the page is drawn in the next frame, is on the screen by the third, and the maps follow after it.
  async releaseShown() {
    if (!this.line) return;
    for (let k = 0; k < 3; k++) await frame();
    setTimeout(() => this.release());
  }
  release() {
    clearTimeout(this.timer);
    this.line?.remove();
    this.line = null;
    const waiting = [...this.waiting];
    this.waiting.clear();
    for (const [canvas, work] of waiting) if (work && canvas.isConnected) this.renderer.render(work, canvas);
  }
}

class LinkedMaps {
  constructor(model, node) {
    Object.assign(this, { model, views: [], titles: [], shown: "", round: 0, form: "pictures", legendEntries: [] });
    this.drawsMaps = hasWebGL();
    this.lasso = new Lasso();
    this.status = statusLine({ role: "alert" });
    this.work = h("progress", { "aria-label": "work goes on", hidden: true });
    this.maps = h("div", { class: "cl-maps" });
    this.legend = h("div", { class: "cl-row cl-legend", role: "group", "aria-label": "legend; a name selects its points" });
    this.hint = h("p", { class: "cl-small cl-muted" });
    this.remark = h("p", { class: "cl-remark", role: "status" });
    const left = h("div", { class: "cl-charts" }, this.remark, this.maps, this.legend, this.hint);
    const body = h("div", { class: "cl-body" }, left, this.makeSelection());
    this.node = h("div", { class: "cl cl-map" }, this.makeTop(), this.status, this.work, body);
    fill(node, this.node);
  }
  makeTop() {
    const choose = (label, change, title = "") => {
      const list = h("select", { "aria-label": label, title, onchange: () => change(list.value) });
      list.row = h("label", { class: "cl-row cl-small" }, label, list);
      return list;
    };
    const open = () => {
      const second = this.second.value;
      this.send({ action: "open_models", first: +this.first.value, ...(second === "" ? {} : { second: +second }) }, "opening");
    };
    this.first = choose("Model", open);
    this.second = choose("next to", open, "a second map of the same points, with one selection");
    this.stages = [0, 1].map(place =>
      choose(place ? "stage of the second" : "stage", stage => this.send({ action: "show_stage", stage, place }, "opening")),
    );
    this.of = choose("Points", of => this.send({ action: "show_points", of }, "reading"), "what each point stands for");
    this.method = choose("Placed by", method => this.send({ action: "place_points", method }, "placing"));
    this.colour = choose("Colour by", column => this.send({ action: "colour_by", column }));
    const lists = [this.of, this.first, this.stages[0], this.second, this.stages[1], this.method, this.colour];
    return h(
      "div",
      { class: "cl-row cl-top" },
      h("h2", {}, "Map"),
      lists.map(list => list.row),
    );
  }
  makeSelection() {
    this.head = h("h3", { class: "cl-grow" }, "Nothing is selected");
    this.turns = h("span", { class: "cl-row" });
    const form = name => toggle(name === "pictures" ? "Pictures" : "Table", this.form === name, () => this.chooseForm(name));
    this.forms = h("span", { class: "cl-group" }, form("pictures"), form("table"));
    this.none = button("Select none", () => this.send({ action: "clear" }));
    this.save = button("Save as CSV", () => this.send({ action: "export_table" }), {
      title: "all selected points, with their places and columns",
    });
    this.points = h("div", { class: "cl-points", tabindex: "0", role: "group", "aria-label": "pictures of the selected points" });
    return h(
      "section",
      { class: "cl-chosen", "aria-label": "selected points" },
      h("div", { class: "cl-row" }, this.head, this.turns),
      h("div", { class: "cl-row" }, this.forms, this.none, this.save),
      this.points,
    );
  }
  send(request, busy = "") {
    if (busy) this.report(busy, true);
    if (request.action === "connect") {
      this.background = hex(getComputedStyle(this.node).backgroundColor);
      request.background = this.background;
    }
    this.model.send(request);
  }
  // The theme has changed: the kernel gives the points colours that can be seen on it.
  follow() {
    const background = hex(getComputedStyle(this.node).backgroundColor);
    if (background === this.background) return;
    this.background = background;
    this.send({ action: "set_background", background });
  }

  report(text, busy = false) {
    this.status.report(text, busy);
    this.work.hidden = !busy;
  }

  // What each message of the kernel changes. An error stays until something works.
  receive(content, buffers) {
    const receivers = {
      models: () => this.receiveModels(content),
      maps: () => this.receiveMaps(content),
      pictures: () => this.receivePictures(buffers),
      selection: () => this.receiveSelection(content, buffers),
      table: () => download(content.name, content.text),
      busy: () => this.report(content.text, true),
      error: () => this.receiveError(content),
    };
    if (!["busy", "error"].includes(content.type)) this.report("");
    receivers[content.type]?.();
  }
  receiveError({ text }) {
    this.report(text);
    if (this.choices) this.receiveModels(this.choices); // what was asked for is not what is shown
  }
  receiveModels(content) {
    this.choices = content;
    const { models, open, of, kinds, method, methods, stages, stage } = content;
    const options = models.map(([name, state], value) =>
      h("option", { value, disabled: Boolean(state), title: state }, state ? `${name} (${state})` : name),
    );
    const set = (list, entries, value, hidden = false) => {
      fill(list, entries);
      list.value = value;
      list.row.hidden = hidden;
    };
    const names = (list, labels = {}) => list.map(name => h("option", { value: name }, labels[name] ?? name));
    set(this.first, options, open[0], models.length < 2);
    const others = options.map(option => option.cloneNode(true));
    const alone = kinds.length === 0 || (models.length < 2 && !(stages[0].length > 1));
    set(this.second, [h("option", { value: "" }, "no second map"), ...others], open[1] ?? "", alone);
    for (const place of [0, 1]) set(this.stages[place], names(stages[place] ?? []), stage[place] ?? "", !stages[place]?.length);
    set(this.of, names(kinds), of, !kinds.length);
    set(this.method, names(methods, METHODS), method, !methods.length);
    this.method.title = TIPS[method] ?? "";
  }
  receiveMaps({ titles, points, columns, colour, legend, remark }) {
    this.remark.textContent = remark;
    const named = column => h("option", { value: column }, column);
    fill(this.colour, h("option", { value: "" }, "one colour"), columns.map(named));
    this.colour.value = colour;
    this.titles = titles;
    const link = titles.length > 1 ? " A selection in one map is one in the other too." : "";
    const how = "Drag around points to select them, with Shift to add more and with Alt to take some away.";
    const zoom = "Turn the wheel to zoom; the first button moves the map.";
    const flat = "This browser has no WebGL, so the maps are pictures. Names in the legend select points.";
    this.hint.textContent = `${some(points, "point")}. ${this.drawsMaps ? `${how} ${zoom}${link}` : flat}`;
    this.showLegend(legend);
    if (this.drawsMaps) this.showMaps();
    else this.model.send({ action: "draw_pictures" });
  }
  showLegend({ kind, entries = [], colours = [], low, high, unknown }) {
    const swatch = colour => h("i", { style: `background:${colour}` });
    const entry = ([name, colour, size]) =>
      button(
        [swatch(colour), h("span", { class: "cl-name" }, name), h("span", { class: "cl-number" }, count(size))],
        () => this.send({ action: "select_value", value: name }),
        { title: `select ${name}` },
      );
    const short = number => String(+number.toPrecision(3));
    const scale = () => [
      h("span", { class: "cl-number" }, short(low)),
      h("span", { class: "cl-scale", style: `background:linear-gradient(90deg, ${colours.join(", ")})` }),
      h("span", { class: "cl-number" }, short(high)),
      unknown ? h("span", { class: "cl-small cl-muted" }, `${some(unknown, "point")} without a value: as the lowest`) : null,
    ];
    fill(this.legend, kind === "numbers" ? scale() : entries.map(entry));
  }
  // The library's widgets, each under its title; those that are shown already stay.
  async showMaps() {
    const manager = this.model.widget_manager;
    const references = this.model.get("maps") ?? [];
    const shown = references.join();
    if (!manager || shown === this.shown) return;
    this.shown = shown;
    this.round += 1;
    const round = this.round;
    const hosts = references.map(() => h("div", { class: "cl-host" }));
    const former = this.views;
    this.views = [];
    this.lasso.forget();
    fill(
      this.maps,
      hosts.map((host, k) => h("figure", {}, h("figcaption", { class: "cl-name", title: this.titles[k] }, this.titles[k]), host)),
    );
    for (const view of former) view.remove();
    for (const [k, reference] of references.entries()) {
      const child = await manager.get_model(reference.replace("IPY_MODEL_", ""));
      child.set("height", this.heightOf(hosts[k]));
      child.save_changes();
      const view = await manager.create_view(child);
      if (round !== this.round) return view.remove(); // other maps are drawn by now
      this.views.push(view);
      hosts[k].append(view.el);
      this.lasso.watch(hosts[k], () => round === this.round);
    }
  }
  // A map is no higher than it is wide without its buttons: the library fits the points to the height.
  heightOf(host) {
    const highest = this.titles.length > 1 ? 460 : 560;
    return Math.round(Math.min(highest, Math.max(240, host.clientWidth - 40)));
  }
  // The page has another width: maps that do not fit it are drawn again. A scroll bar alone changes nothing.
  fit() {
    clearTimeout(this.timer);
    const isOff = view => view.el.clientWidth && Math.abs(view.model.get("height") - this.heightOf(view.el)) > 24;
    const draw = () => {
      if (!this.views.some(isOff)) return;
      this.shown = "";
      this.showMaps();
    };
    this.timer = setTimeout(draw, 250);
  }
  // A saved page has no widgets, and a browser without WebGL cannot draw them.
  receivePictures(buffers) {
    const figure = (buffer, k) =>
      h(
        "figure",
        {},
        h("figcaption", { class: "cl-name" }, this.titles[k]),
        h("img", { src: objectURL(buffer), alt: `map of ${this.titles[k]}` }),
      );
    fill(this.maps, buffers.map(figure));
  }
  chooseForm(form) {
    this.show(form);
    this.send({ action: "show_form", form });
  }
  show(form) {
    this.form = form;
    for (const [k, each] of ["pictures", "table"].entries()) this.forms.children[k].setAttribute("aria-pressed", String(each === form));
    if (!this.selection) return;
    const [content, buffers] = this.selection;
    this.receiveSelection({ ...content, form }, buffers);
  }
  receiveSelection(content, buffers) {
    if (!this.drawsMaps && this.selection && this.selection[0] !== content) this.model.send({ action: "draw_pictures" });
    this.selection = [content, buffers];
    if (content.form !== this.form) return this.show(content.form);
    const { total, start, page, lines, columns } = content;
    this.head.textContent = total ? `${some(total, "point")} selected` : "Nothing is selected";
    for (const each of [this.none, this.save]) each.disabled = !total;
    const next = start + lines.length;
    const turn = (label, to, disabled, name) =>
      button(label, () => this.send({ action: "show_page", start: to }), { disabled, "aria-label": name });
    const turns = [
      h("span", { class: "cl-number" }, `${count(start + 1)} to ${count(next)}`),
      turn("←", Math.max(0, start - page), start === 0, "previous points"),
      turn("→", next, next >= total, "next points"),
    ];
    fill(this.turns, total > page ? turns : []);
    const draw = (k, text) => (bytes(buffers[k]).length ? picture(buffers[k], text) : null);
    const known = ({ label, caption, values }) => [caption === label ? "" : caption, ...values];
    const facts = lines.map(known);
    const names = ["caption", ...columns];
    const used = names.map((_, i) => i).filter(i => facts.some(values => values[i] !== ""));
    const tile = ({ row, label }, k) => {
      const title = [label, ...used.map(i => `${names[i]}: ${facts[k][i]}`)].join("\n");
      return h("figure", { "data-row": row, title }, draw(k, label), h("figcaption", {}, label));
    };
    const cell = text => h("td", {}, text);
    const cells = ({ row, label }, k) =>
      h(
        "tr",
        { "data-row": row },
        cell(draw(k, label)),
        cell(label),
        used.map(i => cell(facts[k][i])),
      );
    const head = h("tr", {}, [h("td"), ...["label", ...used.map(i => names[i])].map(name => h("th", { scope: "col" }, name))]);
    const empty = h("p", { class: "cl-muted" }, "Drag around points, or choose a name in the legend.");
    this.points.classList.toggle("cl-tiles", this.form === "pictures" && total > 0);
    if (!total) fill(this.points, empty);
    else if (this.form === "pictures") fill(this.points, lines.map(tile));
    else fill(this.points, h("table", {}, h("thead", {}, head), h("tbody", {}, lines.map(cells))));
    this.lasso.releaseShown();
  }
  onKey(event) {
    // letters, Enter and arrows are the lists' and the buttons' own
    if (this.node.contains(event.target) && !event.ctrlKey && !event.metaKey) event.stopPropagation();
  }
}

function render({ model, el }) {
  const app = new LinkedMaps(model, el);
  const disconnect = connect(app, model, {});
  const watcher = new MutationObserver(() => app.follow());
  const sizer = new ResizeObserver(() => {
    app.follow(); // the styles of a page that has just opened may come after the first request
    app.fit();
  });
  sizer.observe(app.maps);
  for (const node of [document.documentElement, document.body]) watcher.observe(node, { attributes: true });
  return () => {
    watcher.disconnect();
    sizer.disconnect();
    clearTimeout(app.timer);
    app.round += 1;
    app.lasso.forget();
    for (const view of app.views) view.remove();
    disconnect();
  };
}
export default { render };
