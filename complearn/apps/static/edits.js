// Edits of a caption, call by call: the caption and where it comes from on the left; its tree, the operators, both captions
// with their changes in colour, pictures and scores on the right. The kernel's side is complearn.apps.edits.controller.
import {
  button,
  bytes,
  connect,
  count,
  download,
  drawTree,
  fill,
  h,
  marked,
  picture,
  scrolling,
  some,
  statusLine,
  toggle,
  track,
} from "./shared.js";

class Edits {
  constructor(model, node) {
    this.model = model;
    this.status = statusLine({ role: "alert" });
    const body = h("div", { class: "cl-split" }, this.makeSources(), this.makeEdit());
    this.node = h("div", { class: "cl cl-edits" }, this.makeTop(), body);
    fill(node, this.node);
  }
  makeTop() {
    const open = () => this.send({ action: "open_model", source: +this.source.value }, "scoring");
    this.source = h("select", { "aria-label": "model that scores", hidden: true, onchange: open });
    return h("div", { class: "cl-row cl-top" }, h("h2", { class: "cl-grow" }, "Edits"), this.source);
  }
  makeSources() {
    const placeholder = "such as: a black dog chases a white cat";
    this.text = h("textarea", { rows: "3", placeholder, "aria-label": "caption", spellcheck: "false" });
    this.keep = h("input", { type: "checkbox" });
    this.keepLabel = h("label", { class: "cl-row cl-small cl-muted", hidden: true }, this.keep, "keep the picture with it");
    const edit = button("Take this caption", () => this.openText(), { class: "cl-primary" });
    const form = h(
      "section",
      { "aria-label": "caption to edit" },
      h("h3", {}, "Caption"),
      this.text,
      this.keepLabel,
      h("div", { class: "cl-row" }, edit),
    );
    this.gallery = h("section", { class: "cl-gallery cl-entries", "aria-label": "captions to take" });
    this.history = h("section", { class: "cl-history cl-entries", "aria-label": "edits that were made", hidden: true });
    return h("div", { class: "cl-side" }, form, this.gallery, this.history);
  }
  makeEdit() {
    this.note = h("p", { class: "cl-small cl-remark" });
    this.tree = h("div", { class: "cl-tree", role: "img", tabindex: "0" });
    this.operators = h("div", { class: "cl-operators", role: "group", "aria-label": "operators" });
    [this.lackHead, this.lackList] = [h("summary"), h("ul")];
    this.lack = h("details", { class: "cl-small cl-muted" }, this.lackHead, this.lackList);
    this.captions = h("div", { class: "cl-captions" });
    this.steps = h("section", { class: "cl-steps", "aria-label": "calls" });
    this.pictures = h("div", { class: "cl-row cl-pictures" });
    const part = (label, ...children) => h("section", { "aria-label": label }, h("h3", {}, label), children);
    this.parts = [
      part("Tree", this.tree),
      part("Operators", this.operators, this.lack),
      part("Caption and edit", this.captions, this.steps),
      this.pictures,
    ];
    this.empty = h("p", { class: "cl-muted" }, "Type a caption, or take one from the list.");
    this.main = h("div", { class: "cl-main" }, this.status, this.note, this.empty, this.parts);
    return this.main;
  }
  // What the answer changes is brought into sight: on a narrow page it lies below the list from which it was asked for.
  send(request, busy = "") {
    if (busy) this.status.report(busy, true);
    if (["open_text", "open_item"].includes(request.action)) this.sought = this.main;
    else if (["recall", "call", "choose"].includes(request.action)) this.sought = this.captions;
    this.model.send(request);
  }
  showSought() {
    const { sought } = this;
    this.sought = null;
    if (!sought) return;
    const { top, bottom } = sought.getBoundingClientRect();
    const isSeen = top >= 0 && (sought === this.main ? top < window.innerHeight / 2 : bottom <= window.innerHeight);
    if (!isSeen) sought.scrollIntoView({ block: sought === this.main ? "start" : "center" });
  }
  openText() {
    const keep_picture = !this.keepLabel.hidden && this.keep.checked;
    if (!this.text.value.trim()) {
      this.showParts(false); // what the answer says is about no caption
      this.note.textContent = "";
    }
    this.send({ action: "open_text", text: this.text.value, keep_picture }, "parsing");
  }

  // What each message of the kernel changes. An error stays until something works.
  receive(content, buffers) {
    const receivers = {
      state: () => this.receiveState(content),
      gallery: () => this.receiveGallery(content, buffers),
      caption: () => this.receiveCaption(content),
      edit: () => {
        this.keepFocus(() => this.receiveEdit(content));
        this.showSought();
      },
      pictures: () => this.receivePictures(content, buffers),
      history: () => this.keepFocus(() => this.receiveHistory(content)),
      table: () => download(content.name, content.text),
      busy: () => this.status.report(content.text, true),
      error: () => {
        this.status.report(content.text);
        this.showSought();
      },
    };
    if (!["busy", "error"].includes(content.type)) this.status.report("");
    receivers[content.type]?.();
  }
  // Where what has the keyboard is drawn anew, the keyboard goes on with what has the same name, or with the first operator.
  keepFocus(draw) {
    const before = document.activeElement;
    const inside = this.node.contains(before);
    draw();
    if (!inside || before.isConnected) return;
    const name = control => control.dataset.operator ?? control.getAttribute("aria-label") ?? control.textContent;
    const controls = [...this.node.querySelectorAll("button:not(:disabled), select")];
    const same = controls.find(control => name(control) === name(before));
    (same ?? this.operators.querySelector("button:not(:disabled)") ?? this.text).focus({ preventScroll: true });
  }
  receiveState({ sources, source }) {
    const option = ({ name, can_search, state }, i) => h("option", { value: i, disabled: !can_search, title: state }, name);
    fill(this.source, sources.map(option));
    this.source.value = source;
    this.source.hidden = !sources.length;
  }
  receiveGallery({ start, total, captions, fault, operators }, buffers) {
    const entry = (caption, k) => {
      const image = bytes(buffers[k]).length ? picture(buffers[k], "") : null;
      return button([image, h("span", {}, caption)], () => this.send({ action: "open_item", item: start + k }, "parsing"), {
        title: caption,
      });
    };
    const turn = (label, to, disabled) => button(label, () => this.send({ action: "show_page", start: to }), { disabled });
    const next = start + captions.length;
    const size = Math.max(1, captions.length);
    const range = h(
      "span",
      { class: "cl-small cl-muted cl-grow" },
      total ? `${count(start + 1)} to ${count(next)} of ${count(total)}` : "none",
    );
    const pages = [range, turn("Previous", Math.max(0, start - size), start === 0), turn("Next", next, next >= total)];
    const remark = fault ? h("p", { class: "cl-small cl-remark" }, fault) : null;
    const head = h("h3", {}, "Or one of these");
    fill(this.gallery, head, remark, captions.map(entry), h("div", { class: "cl-row" }, pages), this.drawBatch(operators, total));
  }
  drawBatch(operators, total) {
    const option = ([name, title]) => h("option", { value: name }, title);
    const which = h("select", { "aria-label": "operator for all captions of this page" }, operators.map(option));
    which.value = this.batch ?? operators[0][0];
    const call = () => {
      this.batch = which.value;
      this.send({ action: "call_page", operator: this.batch }, "parsing");
    };
    const make = button("Edit all of this page", call, { title: "draws one edit of each caption above that takes it" });
    return total ? h("div", { class: "cl-row" }, which, make) : null;
  }
  receiveCaption({ text, words, cells, note }) {
    this.note.textContent = note;
    this.showParts(!!text);
    if (!text) return;
    this.text.value = text;
    this.drawTree(words, cells);
  }
  showParts(shown) {
    this.empty.hidden = shown;
    for (const part of this.parts) part.hidden = !shown;
  }
  drawTree(words, cells) {
    drawTree(this.tree, words, cells);
    this.tree.parentNode.hidden = !cells.length;
    this.tree.setAttribute(
      "aria-label",
      `constituents: ${cells
        .filter(each => each[3] > 1)
        .map(([label, a, b]) => `${label} ${words.slice(a, b).join(" ")}`)
        .join("; ")}`,
    );
  }
  receiveEdit(content) {
    const { operators, source, caption, steps, options, chosen } = content;
    const click = operator => this.send({ action: "call", operator }, "editing");
    const operator = ({ name, title, about, count: left }) =>
      button([h("span", { class: "cl-grow" }, title), h("span", { class: "cl-number" }, count(left))], () => click(name), {
        title: about,
        disabled: !left,
        "data-operator": name,
      });
    fill(this.operators, operators.map(operator));
    const without = operators.filter(({ lack }) => lack);
    this.lack.hidden = !without.length;
    this.lackHead.textContent = `${some(without.length, "operator")} without a place here, and why`;
    fill(
      this.lackList,
      without.map(({ title, lack }) => h("li", {}, h("b", {}, title), `: ${lack}`)),
    );
    const useless = without.length === operators.length && !steps.length;
    if (useless !== this.useless) this.lack.open = this.useless = useless; // else as the person left it
    const line = (label, pieces) => [h("span", { class: "cl-label" }, label), h("p", { class: "cl-line" }, marked(pieces))];
    const nothing = operators.some(({ count: left }) => left) ? "Click an operator." : "";
    fill(this.captions, line("Caption", source), caption.length ? line("Edit", caption) : h("p", { class: "cl-muted" }, nothing));
    const step = ({ title, label, caption: text }, k) =>
      h("li", {}, h("mark", { class: `cl-call-${k % 6}` }, title), h("span", {}, label), h("span", { class: "cl-muted" }, text));
    const places = { class: "cl-places", role: "group", "aria-label": "what the last call can do" };
    const place = (label, k) => toggle([label], k === chosen, () => this.choose(k));
    const undo = button("Undo", () => this.send({ action: "undo" }), { "data-undo": "last" });
    const over = button("Start over", () => this.send({ action: "undo", every: true }));
    const told = `All that “${steps.at(-1)?.title}” can do here:`;
    const last = [h("span", { class: "cl-muted cl-grow" }, told), undo, over];
    const listed = scrolling(h("div", places, options.map(place)));
    const all = [h("div", { class: "cl-row" }, last), listed];
    fill(this.steps, steps.length ? [h("ol", {}, steps.map(step)), ...all] : []);
    const on = listed.children[chosen];
    if (on && steps.length) listed.scrollTop = on.offsetTop - (listed.clientHeight - on.offsetHeight) / 2;
  }
  choose(choice) {
    this.send({ action: "choose", choice }, "editing");
  }
  receivePictures({ pictures, model }, buffers) {
    this.keepLabel.hidden = !pictures.length;
    const all = pictures.flatMap(({ scores }) => scores ?? []);
    const [least, most] = [Math.min(0, ...all), Math.max(1e-9, ...all)]; // the longer bar is the higher score, of negative ones too
    const bar = (label, score) => {
      const number = h("span", { class: "cl-number" }, score.toFixed(3));
      return h("div", { class: "cl-bar" }, h("span", {}, label), track((score - least) / (most - least)), number);
    };
    const frame = ({ name, scores }, k) => {
      const bars = scores ? ["caption", "edit"].map((label, n) => bar(label, scores[n])) : [];
      return h("figure", { title: model }, picture(buffers[k], name), h("figcaption", {}, name[0].toUpperCase() + name.slice(1)), bars);
    };
    fill(this.pictures, pictures.map(frame));
  }
  receiveHistory({ records, total, note }) {
    const entry = ({ number, title, pieces, current }) =>
      toggle([h("span", { class: "cl-small cl-muted" }, title), h("span", {}, marked(pieces))], current, () =>
        this.send({ action: "recall", number }),
      );
    const save = (label, action, title) => button(label, () => this.send({ action }), { title });
    const lines = save("JSONL", "export_lines", "save as the lines that training and review read");
    const saves = [save("CSV", "export_table", "save as a table"), lines];
    const head = h("h3", { class: "cl-row" }, h("span", { class: "cl-grow" }, `Made: ${count(total)}`), saves);
    this.history.hidden = !total;
    const told = note ? h("p", { class: "cl-muted", role: "status" }, note) : [];
    fill(this.history, head, told, records.map(entry).reverse());
  }
  onKey(event) {
    const { target, key } = event;
    if (!this.node.contains(target)) return;
    if (target === this.text && key === "Enter" && !event.shiftKey && !event.isComposing) {
      this.openText();
      event.preventDefault();
    }
    if (!event.ctrlKey && !event.metaKey) event.stopPropagation(); // letters, Enter and arrows are the caption's and the controls' own
  }
}

function render({ model, el }) {
  const app = new Edits(model, el);
  return connect(app, model, { keydown: event => app.onKey(event) });
}
export default { render };
