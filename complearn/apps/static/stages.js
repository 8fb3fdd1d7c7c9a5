// The stages of a model: images to choose an anchor from on the left; on the right the anchor, and for every stage a map of
// all images, its clusters, what it groups by, and the anchor's neighbours. The kernel's side is
// complearn.apps.stages.controller.
import {
  button,
  bytes,
  connect,
  count,
  download,
  explained,
  fill,
  h,
  numbers,
  percent,
  picture,
  scrolling,
  some,
  statusLine,
  toggle,
  track,
} from "./shared.js";

const title = stage => (stage === "integrated" ? "All stages together" : stage.replace(/^stage-(\d+)$/, "Stage $1"));
const named = stage => title(stage).replace(/^[AS]/, first => first.toLowerCase());

// What the numbers mean; the kernel says what an agreement is.
const MEANINGS = {
  accuracy:
    "A linear probe, which is a straight-line classifier, learns the attribute from this stage's features of one half of the images and is asked about the other half, both ways. In brackets: what always naming the most frequent value gets right.",
  cosine: "The cosine of this stage's features of the two images: 1 is the same direction, 0 has nothing to do with it.",
  cluster:
    "Images that k-means puts together by this stage's features. After the size: the value that sets the cluster apart, with its share in the cluster and, in brackets, its share of all images. Choose a cluster to see its images on the left.",
  map: "The plane in which this stage's features spread most (two principal components). Each dot is an image; near dots look alike to this stage. The ring is the anchor, filled with the text's colour are its neighbours. Click a dot to make it the anchor.",
};

// The pixels of a tiny picture are seen as they are.
const sharp = image => {
  image.addEventListener("load", () => image.classList.toggle("cl-tiny", image.naturalWidth < 64));
  return image;
};

const SIZE = { width: 300, height: 220, margin: 10 }; // of a map
const svg = (tag, attributes, ...children) => {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
};

// All images in the plane of one stage; the dots are drawn once, and the anchor and its neighbours are marked.
class StageMap {
  constructor(stage, places, colours, choose) {
    const axis = k => {
      const values = Float32Array.from(colours, (_, i) => places[2 * i + k]);
      const low = values.reduce((a, b) => Math.min(a, b), Infinity);
      const high = values.reduce((a, b) => Math.max(a, b), -Infinity);
      const room = (k ? SIZE.height : SIZE.width) - 2 * SIZE.margin;
      return values.map(value => SIZE.margin + (room * (value - low)) / Math.max(high - low, 1e-9));
    };
    this.x = axis(0);
    this.y = axis(1).map(value => SIZE.height - value);
    const radius = colours.length > 300 ? 2.2 : 3;
    this.dots = colours.map((colour, i) => svg("circle", { cx: this.x[i], cy: this.y[i], r: radius, fill: colour }));
    this.ring = svg("circle", { class: "cl-ring", r: 7 });
    const box = `0 0 ${SIZE.width} ${SIZE.height}`;
    this.node = svg("svg", { viewBox: box, role: "img", "aria-label": `map of the images in ${named(stage)}` }, ...this.dots, this.ring);
    this.node.addEventListener("click", event => {
      const image = this.nearest(event);
      if (image >= 0) choose(image);
    });
  }
  nearest(event) {
    const box = this.node.getBoundingClientRect();
    const scale = SIZE.width / box.width;
    const [x, y] = [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
    let nearest = -1;
    let least = 20 ** 2;
    for (let i = 0; i < this.x.length; i++) {
      const distance = (this.x[i] - x) ** 2 + (this.y[i] - y) ** 2;
      if (distance < least) [nearest, least] = [i, distance];
    }
    return nearest;
  }
  mark(anchor, neighbours) {
    this.ring.setAttribute("cx", this.x[anchor]);
    this.ring.setAttribute("cy", this.y[anchor]);
    this.dots.forEach((dot, i) => dot.classList.toggle("cl-near", neighbours.has(i)));
  }
}

const LARGEST = 4 * 2 ** 20; // bytes of a photo that is sent as it is; servers close a connection on ten megabytes
const SIDE = 1600; // pixels to which a larger one is made smaller

// A photo's file, made smaller where it is too large to be sent.
const smaller = async file => {
  if (file.size <= LARGEST) return file.arrayBuffer();
  const bitmap = await createImageBitmap(file);
  const scale = Math.min(1, SIDE / Math.max(bitmap.width, bitmap.height));
  const canvas = new OffscreenCanvas(Math.round(scale * bitmap.width), Math.round(scale * bitmap.height));
  canvas.getContext("2d").drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  return (await canvas.convertToBlob({ type: "image/jpeg", quality: 0.95 })).arrayBuffer();
};

class Stages {
  constructor(model, node) {
    Object.assign(this, { model, anchor: 0, maps: new Map() });
    this.status = statusLine({ role: "alert" });
    const body = h("div", { class: "cl-split" }, this.makeAnchors(), this.makeMain());
    this.node = h("div", { class: "cl cl-stages" }, this.makeTop(), body);
    fill(node, this.node);
  }
  makeTop() {
    const open = () => this.send({ action: "open_model", source: +this.models.value }, "opening");
    this.models = h("select", { "aria-label": "model", onchange: open });
    this.about = h("span", { class: "cl-small cl-muted cl-grow" });
    const change = () => this.send({ action: "show_neighbours", count: +this.number.value || 0 });
    this.number = h("input", { type: "number", min: "1", max: "20", "aria-label": "neighbours in each stage", onchange: change });
    const recolour = () => this.send({ action: "colour_by", column: this.colour.value });
    this.colour = h("select", { "aria-label": "colour of the maps", onchange: recolour });
    const files = h("input", { type: "file", accept: "image/*", multiple: true, "aria-label": "show your own photos" });
    files.addEventListener("change", () => this.sendPhotos([...files.files]).finally(() => (files.value = "")));
    const tip = "show pictures of yours under the stages of this model; they stay on this machine";
    return h(
      "div",
      { class: "cl-row cl-top" },
      h("h2", {}, "Stages"),
      this.models,
      h("label", { class: "cl-upload", title: tip }, "Your photos…", files),
      this.about,
      h("label", { class: "cl-row cl-small" }, "Colour maps by", this.colour),
      h("label", { class: "cl-row cl-small" }, "Neighbours", this.number),
    );
  }
  makeAnchors() {
    this.anchorsHead = h("h3", { class: "cl-row" });
    this.anchors = h("div", { class: "cl-anchors", role: "group", "aria-label": "images to choose an anchor from" });
    return h("div", { class: "cl-side" }, h("section", { "aria-label": "anchors" }, this.anchorsHead, this.anchors));
  }
  makeMain() {
    this.heading = h("section", { class: "cl-row cl-anchor", "aria-label": "anchor" });
    this.rows = h("div", { class: "cl-rows" });
    this.scale = h("p", { class: "cl-small cl-muted cl-scale-line" });
    this.legend = h("div", { class: "cl-row cl-small cl-legend" });
    const save = button("Save as CSV", () => this.send({ action: "export_table" }), {
      title: "the neighbours of every stage; of the selected images alone, where some are",
    });
    this.none = button("Select none", () => this.send({ action: "clear" }));
    this.picked = h("span", { class: "cl-small cl-muted cl-grow" });
    return h(
      "div",
      { class: "cl-main" },
      this.status,
      this.heading,
      this.scale,
      this.legend,
      this.rows,
      h("div", { class: "cl-row" }, this.picked, this.none, save),
    );
  }
  send(request, busy = "", buffers = []) {
    if (busy) this.status.report(busy, true);
    this.model.send(request, undefined, buffers);
  }

  async sendPhotos(files) {
    if (!files.length) return;
    this.status.report(`reading ${some(files.length, "photo")}`, true);
    for (const [place, file] of files.entries()) {
      const request = { action: "add_photo", name: file.name, place, count: files.length };
      try {
        this.send(request, "", [await smaller(file)]);
      } catch (error) {
        return this.status.report(`${file.name} cannot be read (${error.message}); leave it out and choose again`);
      }
    }
  }

  // What each message of the kernel changes. An error stays until something works.
  receive(content, buffers) {
    const receivers = {
      models: () => this.receiveModels(content),
      anchors: () => this.receiveAnchors(content, buffers),
      maps: () => this.receiveMaps(content, buffers),
      stages: () => this.receiveStages(content, buffers),
      table: () => download(content.name, content.text),
      busy: () => this.status.report(content.text, true),
      error: () => this.receiveError(content),
    };
    if (!["busy", "error"].includes(content.type)) this.status.report("");
    receivers[content.type]?.();
  }
  receiveError({ text }) {
    this.status.report(text);
    if (this.shownCount) this.number.value = this.shownCount; // what was asked for is not what is shown
    if (this.openModel >= 0) this.models.value = this.openModel;
  }
  receiveModels({ models, open }) {
    this.openModel = open;
    fill(
      this.models,
      models.map(([name, state], value) =>
        h("option", { value, disabled: Boolean(state), title: state }, state ? `${name} (${state})` : name),
      ),
    );
    this.models.value = open;
  }
  receiveAnchors({ start, total, of, page, rows, anchor, stage, cluster }, buffers) {
    this.about.textContent = some(of, "image");
    const next = start + rows.length;
    const turn = (label, to, disabled, name) =>
      button(label, () => this.send({ action: "show_page", start: to }), { disabled, "aria-label": name });
    const turns =
      total > page
        ? [turn("←", Math.max(0, start - page), start === 0, "previous images"), turn("→", next, next >= total, "next images")]
        : [];
    const which = stage ? `${title(stage)}, cluster ${cluster + 1}` : "Anchor";
    const all = button("All images", () => this.send({ action: "show_cluster" }), { title: "browse all images again" });
    fill(
      this.anchorsHead,
      h("span", { class: "cl-grow" }, `${which}: images ${count(start + 1)} to ${count(next)} of ${count(total)}`),
      stage && all,
      turns,
    );
    const focused = this.anchors.contains(document.activeElement) ? document.activeElement.dataset.number : null;
    const tile = ({ number, title: text }, k) =>
      toggle(
        bytes(buffers[k]).length ? sharp(picture(buffers[k], text)) : text,
        number === anchor,
        () => this.send({ action: "choose", anchor: number }),
        { title: text, "data-number": number },
      );
    fill(this.anchors, rows.map(tile));
    for (const each of this.anchors.children) if (focused !== null && each.dataset.number === focused) each.focus({ preventScroll: true });
  }
  receiveMaps({ stages, colour, columns, colours, legend }, buffers) {
    const entries = [["", "clusters"], ...columns.map(column => [column, column])];
    fill(
      this.colour,
      entries.map(([value, label]) => h("option", { value }, label)),
    );
    this.colour.value = colour;
    Object.assign(this, { palette: colours, coloured: colour });
    this.maps.clear();
    stages.forEach((stage, k) => {
      const places = numbers(Float32Array, buffers[2 * k]);
      const groups = [...numbers(Int32Array, buffers[2 * k + 1])];
      const dots = groups.map(group => colours[((group % colours.length) + colours.length) % colours.length]);
      this.maps.set(stage, new StageMap(stage, places, dots, anchor => this.send({ action: "choose", anchor })));
    });
    const swatch = ([name, shade]) => h("span", { class: "cl-row" }, h("i", { class: "cl-swatch", style: `background:${shade}` }), name);
    fill(this.legend, legend.map(swatch));
    this.legend.hidden = !legend.length;
    if (this.shown) this.receiveStages(...this.shown);
  }
  receiveStages(content, buffers) {
    this.shown = [content, buffers];
    this.drawStages(content, buffers);
  }
  drawStages({ anchor, name, values, count: shown, rows, n_picked, scale, stage, cluster }, buffers) {
    Object.assign(this, { anchor, shownCount: shown, browsed: stage ? `${stage} ${cluster}` : "", meaning: scale });
    this.scale.textContent = scale;
    const focused = this.rows.contains(document.activeElement) ? document.activeElement.dataset : null;
    if (document.activeElement !== this.number) this.number.value = shown;
    const draw = (k, text) =>
      bytes(buffers[k]).length ? sharp(picture(buffers[k], text)) : h("span", { class: "cl-muted" }, "no picture");
    const facts = values.map(([name, value]) => h("span", {}, h("span", { class: "cl-muted" }, `${name} `), value));
    fill(
      this.heading,
      draw(0, "anchor"),
      h(
        "div",
        {},
        h("h2", {}, `Image ${count(anchor + 1)}`),
        h("p", { class: "cl-small cl-muted" }, name),
        h("div", { class: "cl-row" }, facts),
      ),
    );
    fill(
      this.rows,
      rows.map(row => this.makeStage(row, draw)),
    );
    this.picked.textContent = n_picked ? `${some(n_picked, "image")} selected` : "no image is selected, which means all of them";
    this.none.hidden = !n_picked;
    if (focused) this.focusAgain(focused);
  }
  // What had the keyboard was drawn again.
  focusAgain({ stage, image, cluster }) {
    [...this.rows.querySelectorAll("button")]
      .find(({ dataset }) => dataset.stage === stage && dataset.image === image && dataset.cluster === cluster)
      ?.focus({ preventScroll: true });
  }
  makeStage(row, draw) {
    const { stage, grouped, neighbours } = row;
    const map = this.maps.get(stage);
    map?.mark(this.anchor, new Set(neighbours.map(({ number }) => number)));
    const anchors = neighbours.map(each => this.makeNeighbour(each, stage, draw));
    return h(
      "section",
      { "aria-label": title(stage), "data-stage": stage },
      h("h3", { class: "cl-row" }, title(stage), h("span", { class: "cl-muted cl-groups" }, grouped)),
      h(
        "div",
        { class: "cl-stage" },
        h("div", { class: "cl-plane" }, h("span", { class: "cl-label" }, explained("Map", MEANINGS.map)), map?.node),
        this.makeClusters(row),
        this.makeNumbers(row),
        h(
          "div",
          { class: "cl-near-part" },
          h("span", { class: "cl-label" }, "Neighbours of the anchor, by ", explained("cosine", MEANINGS.cosine)),
          h("div", { class: "cl-neighbours" }, anchors),
        ),
      ),
    );
  }
  // The clusters of a stage, each with its size and what sets it apart.
  makeClusters({ stage, groups, cluster: own }) {
    const entry = ([cluster, size, , value, share, overall]) => {
      const on = this.browsed === `${stage} ${cluster}`;
      const shade = this.coloured ? null : this.palette?.[cluster % this.palette.length];
      const about = value ? `${percent(share)} ${value} (${percent(overall)})` : "";
      const request = on ? { action: "show_cluster" } : { action: "show_cluster", stage, cluster };
      return toggle(
        [
          shade && h("i", { class: "cl-swatch", style: `background:${shade}` }),
          h("span", {}, `Cluster ${cluster + 1}${cluster === own ? ", the anchor's" : ""}`),
          h("span", { class: "cl-small cl-grow cl-about" }, about),
          h("span", { class: "cl-number" }, some(size, "image")),
        ],
        on,
        () => this.send(request),
        { "data-cluster": cluster, "data-stage": stage },
      );
    };
    const list = scrolling(h("div", { class: "cl-entries cl-clusters", role: "group", "aria-label": "clusters" }, groups.map(entry)));
    return h("div", {}, h("span", { class: "cl-label" }, explained(some(groups.length, "cluster"), MEANINGS.cluster)), list);
  }
  // How far a stage's clusters follow the attributes and those of other stages, and what a probe reads from it.
  makeNumbers({ by, others }) {
    const agreement = (value, word) => [
      h("td", {}, h("span", { class: "cl-agreement" }, track(Math.max(0, value)))),
      h("td", { class: "cl-number" }, (Math.abs(value) < 0.005 ? 0 : value).toFixed(2)),
      h("td", {}, word),
    ];
    const probe = (accuracy, chance) => (accuracy == null ? "–" : `${percent(accuracy)} (${percent(chance)})`);
    const attribute = ([name, value, word, accuracy, chance]) =>
      h("tr", {}, h("th", { scope: "row" }, name), agreement(value, word), h("td", { class: "cl-number" }, probe(accuracy, chance)));
    const other = ([stage, value, word]) =>
      h("tr", {}, h("th", { scope: "row" }, named(stage)), agreement(value, word), by.length > 0 && h("td", {}, ""));
    if (!by.length && !others.length) return h("p", { class: "cl-muted" }, "There is no attribute and no other stage to compare with.");
    const heads = [
      h("th", { scope: "col" }, "Its clusters and"),
      h("th", { scope: "col", colspan: "3" }, explained("agreement", this.meaning)),
      by.length > 0 && h("th", { scope: "col" }, explained("accuracy", MEANINGS.accuracy)),
    ];
    return h("table", { class: "cl-numbers" }, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, by.map(attribute), others.map(other)));
  }
  makeNeighbour({ picture: k, number, id, cosine, own, values, picked }, stage, draw) {
    const words = values.map(([name, value, same]) =>
      h("span", { class: same ? "cl-same" : "cl-muted", title: `${name}${same ? ", as the anchor" : ""}` }, value),
    );
    const where = own ? "" : " · another cluster";
    const select = toggle(
      [draw(k, id), h("span", { class: "cl-small cl-number" }, `${cosine.toFixed(3)}${where}`), h("span", { class: "cl-words" }, words)],
      picked,
      () => this.send({ action: "pick", image: id }),
      { title: id, "data-image": id, "data-stage": stage },
    );
    return h(
      "div",
      { class: "cl-tile" },
      select,
      button("As anchor", () => this.send({ action: "choose", anchor: number }), { "data-anchor": number }),
    );
  }
  // Alt and an arrow go to the image before and after; arrows walk through the page of anchors.
  onKey(event) {
    const { target, key } = event;
    if (!this.node.contains(target)) return;
    const step = { ArrowLeft: -1, ArrowRight: 1 }[key];
    const tiles = [...this.anchors.children];
    const to = tiles.indexOf(target) + (step ?? 0);
    if (event.altKey && step) this.send({ action: "move", step });
    else if (step && tiles.includes(target) && tiles[to]) tiles[to].focus();
    else {
      if (!event.ctrlKey && !event.metaKey) event.stopPropagation(); // letters, Enter and arrows are the field's and the buttons' own
      return;
    }
    event.stopPropagation();
    event.preventDefault();
  }
}

function render({ model, el }) {
  const app = new Stages(model, el);
  return connect(app, model, { keydown: event => app.onKey(event) });
}
export default { render };
