// The stages of a model: images to choose an anchor from on the left; on the right the anchor, and for every stage its
// neighbours and the attribute that the stage groups by. The kernel's side is complearn.apps.stages.controller.
import { button, bytes, connect, count, download, fill, h, percent, picture, some, statusLine, toggle, track } from "./shared.js";

const title = stage => (stage === "integrated" ? "All stages together" : stage.replace(/^stage-(\d+)$/, "Stage $1"));

class Stages {
  constructor(model, node) {
    Object.assign(this, { model, anchor: 0 });
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
    return h(
      "div",
      { class: "cl-row cl-top" },
      h("h2", {}, "Stages"),
      this.models,
      this.about,
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
      this.rows,
      h("div", { class: "cl-row" }, this.picked, this.none, save),
    );
  }
  send(request, busy = "") {
    if (busy) this.status.report(busy, true);
    this.model.send(request);
  }

  // What each message of the kernel changes. An error stays until something works.
  receive(content, buffers) {
    const receivers = {
      models: () => this.receiveModels(content),
      anchors: () => this.receiveAnchors(content, buffers),
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
  receiveAnchors({ start, total, page, rows, anchor }, buffers) {
    this.about.textContent = some(total, "image");
    const next = start + rows.length;
    const turn = (label, to, disabled, name) =>
      button(label, () => this.send({ action: "show_page", start: to }), { disabled, "aria-label": name });
    const turns =
      total > page
        ? [turn("←", Math.max(0, start - page), start === 0, "previous images"), turn("→", next, next >= total, "next images")]
        : [];
    fill(
      this.anchorsHead,
      h("span", { class: "cl-grow" }, `Anchor: image ${count(start + 1)} to ${count(next)} of ${count(total)}`),
      turns,
    );
    const focused = this.anchors.contains(document.activeElement) ? document.activeElement.dataset.number : null;
    const tile = ({ number, title: text }, k) =>
      toggle(
        bytes(buffers[k]).length ? picture(buffers[k], text) : text,
        number === anchor,
        () => this.send({ action: "choose", anchor: number }),
        { title: text, "data-number": number },
      );
    fill(this.anchors, rows.map(tile));
    for (const each of this.anchors.children) if (focused !== null && each.dataset.number === focused) each.focus({ preventScroll: true });
  }
  receiveStages({ anchor, id, values, count: shown, rows, n_picked }, buffers) {
    Object.assign(this, { anchor, shownCount: shown });
    const focused = this.rows.contains(document.activeElement) ? document.activeElement.dataset : null;
    if (document.activeElement !== this.number) this.number.value = shown;
    const draw = (k, text) => (bytes(buffers[k]).length ? picture(buffers[k], text) : h("span", { class: "cl-muted" }, "no picture"));
    const facts = values.map(([name, value]) => h("span", {}, h("span", { class: "cl-muted" }, `${name} `), value));
    fill(
      this.heading,
      draw(0, "anchor"),
      h(
        "div",
        {},
        h("h2", {}, `Image ${count(anchor + 1)}`),
        h("p", { class: "cl-small cl-muted" }, id),
        h("div", { class: "cl-row" }, facts),
      ),
    );
    fill(
      this.rows,
      rows.map(row => this.makeStage(row, draw)),
    );
    this.picked.textContent = n_picked ? `${some(n_picked, "image")} selected` : "no image is selected, which means all of them";
    this.none.hidden = !n_picked;
    if (focused)
      [...this.rows.querySelectorAll("button")]
        .find(each => each.dataset.stage === focused.stage && each.dataset.image === focused.image)
        ?.focus({ preventScroll: true });
  }
  makeStage({ stage, by, cluster, clusters, size, inside, neighbours }, draw) {
    const most = by.reduce((best, each) => (best && best[1] >= each[1] ? best : each), null);
    const groups = !most
      ? "no attribute of the images is known"
      : most[1] < 0.05
        ? "groups by none of the attributes"
        : `groups by ${most[0]}`;
    const bar = ([name, value]) =>
      h(
        "span",
        { class: "cl-agreement" },
        h("span", {}, name),
        track(Math.max(0, value)),
        h("span", { class: "cl-number" }, value.toFixed(2)),
      );
    const share = ([, value, part, overall]) => h("span", { title: `${percent(overall)} of all images` }, `${percent(part)} ${value}`);
    const bars = by.length
      ? h("div", { class: "cl-row cl-bars", title: "adjusted mutual information of the stage's clusters and each attribute" }, by.map(bar))
      : null;
    const contents = h(
      "p",
      { class: "cl-row cl-small" },
      h("span", { class: "cl-muted" }, `the anchor's cluster, ${cluster + 1} of ${clusters}: ${some(size, "image")}`),
      inside.map(share),
    );
    return h(
      "section",
      { "aria-label": title(stage), "data-stage": stage },
      h("h3", { class: "cl-row" }, title(stage), h("span", { class: "cl-muted cl-groups" }, groups)),
      bars,
      contents,
      h(
        "div",
        { class: "cl-neighbours" },
        neighbours.map(each => this.makeNeighbour(each, stage, draw)),
      ),
    );
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
