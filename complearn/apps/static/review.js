// Review of edits: a caption, a negative with its changes in colour, and what a person decides about it.
// The kernel's side is complearn.apps.edits.review; every decision is kept there before the next negative is shown.
import {
  button,
  bytes,
  connect,
  copyable,
  count,
  fill,
  h,
  hasKeyboard,
  marked,
  objectURL,
  percent,
  some,
  statusLine,
  toggle,
  track,
} from "./shared.js";

const TAKE_BACK =
  "the decision about this negative; where it has none, the last one that you made (Ctrl and Z: the last one, wherever you are)";
// When the keys of the arrows at the top are those of the view: until then they are those of decisions.
const CHANGE_KEYS = [", once no decision made here is left to take back", ", once no decision is left to make again"];
const VERDICTS = ["accepted", "rejected", "corrected", "open"];

class Review {
  constructor(model, node) {
    Object.assign(this, { model, item: null, changeKeys: CHANGE_KEYS });
    this.status = statusLine({ role: "alert" });
    this.next = h("div", { hidden: true });
    this.faults = h("div", { class: "cl-faults" });
    this.progress = h("div", { class: "cl-progress" });
    this.name = h("span", { class: "cl-muted cl-grow cl-name" });
    this.keepOpen = h("input", { type: "checkbox" });
    const open = h(
      "label",
      { class: "cl-row cl-small", title: "the file holds the negatives without a decision too" },
      this.keepOpen,
      "keep the open ones",
    );
    const save = button("Export", () => this.send({ action: "export", keep_open: this.keepOpen.checked }), {
      title: "write what was accepted and corrected to a file of its own",
    });
    const top = h("div", { class: "cl-row cl-top" }, h("h2", {}, "Review"), this.name, open, save);
    this.node = h(
      "div",
      { class: "cl cl-review", tabindex: "-1" }, // a click anywhere in it brings the keyboard
      top,
      h("div", { class: "cl-body" }, this.progress, this.status, this.next, this.faults, this.makeCard(), this.makeList()),
    );
    fill(node, this.node);
    this.enable(false);
  }
  makeCard() {
    this.head = h("div", { class: "cl-row cl-small cl-muted" });
    this.picture = h("img", { alt: "picture of the caption", hidden: true, draggable: "false" });
    this.texts = h("div", { class: "cl-grow" });
    this.text = h("textarea", { rows: "2", "aria-label": "the negative as it should be", spellcheck: "true" });
    const keep = button("Save the correction", () => this.correct(), { class: "cl-primary" });
    const leave = button("Cancel", () => this.closeEditor());
    this.editor = h("section", { hidden: true, "aria-label": "correction" }, this.text, h("div", { class: "cl-row" }, keep, leave));
    const decide = (label, verdict, key) => button([label, h("kbd", {}, key)], () => this.decide(verdict), { "data-verdict": verdict });
    this.choices = h(
      "div",
      { class: "cl-row cl-choices" },
      decide("Accept", "accepted", "A"),
      decide("Reject", "rejected", "R"),
      button(["Correct", h("kbd", {}, "E")], () => this.openEditor(), { "data-verdict": "corrected" }),
      button(["Take back", h("kbd", {}, "U")], () => this.takeBack(), { "data-verdict": "open", title: TAKE_BACK }),
      h("span", { class: "cl-grow" }),
      button(["Back", h("kbd", {}, "←")], () => this.move(-1)),
      button(["Forward", h("kbd", {}, "→")], () => this.move(1)),
      button(["Next open", h("kbd", {}, "N")], () => this.send({ action: "next_open" })),
    );
    const body = h("div", { class: "cl-row cl-texts" }, this.picture, this.texts);
    this.card = h(
      "section",
      { class: "cl-card", tabindex: "0", "aria-label": "negative under review" },
      this.head,
      body,
      this.editor,
      this.choices,
    );
    return this.card;
  }
  makeList() {
    const choice = label => h("select", { "aria-label": label, onchange: () => this.list() });
    [this.verdict, this.operator] = [choice("verdict of the listed negatives"), choice("operator of the listed negatives")];
    const words = { type: "search", placeholder: "words", "aria-label": "words of the listed negatives", autocomplete: "off" };
    this.words = h("input", { ...words, onchange: () => this.list() });
    this.every = h("input", { type: "checkbox", "aria-label": "tick all on this page", onchange: () => this.tickAll() });
    const decide = (label, verdict) => button(label, () => this.decideMany(verdict), { "data-many": verdict });
    const many = [decide("Accept ticked", "accepted"), decide("Reject ticked", "rejected"), decide("Take back ticked", "open")];
    this.rows = h("ul", { class: "cl-rows" });
    this.pages = h("div", { class: "cl-row" });
    const filters = h("div", { class: "cl-row" }, this.verdict, this.operator, this.words);
    const head = h(
      "div",
      { class: "cl-row" },
      h("label", { class: "cl-every" }, this.every, "all of this page"),
      h("span", { class: "cl-grow" }),
      many,
    );
    return h(
      "section",
      { class: "cl-list", "aria-label": "list of negatives" },
      h("h3", {}, "All negatives"),
      filters,
      head,
      this.rows,
      this.pages,
    );
  }
  list(start = 0) {
    const [verdict, operator, words] = [this.verdict.value, this.operator.value, this.words.value];
    this.send({ action: "list_items", verdict, operator, words, start });
  }
  get ticks() {
    return [...this.rows.querySelectorAll("input")];
  }
  tickAll() {
    for (const tick of this.ticks) tick.checked = this.every.checked;
  }
  decideMany(verdict) {
    const places = this.ticks.filter(tick => tick.checked).map(tick => +tick.value);
    this.send({ action: "decide_many", places, verdict });
  }
  receiveList({ rows, start, total, page, verdict, operator, words, operators }) {
    const ticked = new Set(this.ticks.filter(tick => tick.checked).map(tick => +tick.value));
    const option = ([value, label]) => h("option", { value }, label);
    fill(this.verdict, [["", "any verdict"], ...VERDICTS.map(each => [each, each])].map(option));
    fill(this.operator, [["", "any operator"], ...operators].map(option));
    [this.verdict.value, this.operator.value, this.words.value] = [verdict, operator, words];
    const row = ({ place, pieces, title, verdict: state, current }) => {
      const told = `tick negative ${place + 1}`;
      const tick = h("input", { type: "checkbox", value: place, checked: ticked.has(place), "aria-label": told });
      const parts = [h("span", { class: "cl-grow" }, marked(pieces)), h("span", { class: "cl-small cl-muted" }, title)];
      const said = h("b", { class: "cl-verdict cl-small", "data-state": state }, state);
      return h(
        "li",
        {},
        tick,
        toggle([...parts, said], current, () => this.send({ action: "go", place })),
      );
    };
    fill(this.rows, rows.length ? rows.map(row) : h("li", { class: "cl-muted" }, "no negative is like that"));
    this.every.checked = rows.length > 0 && this.ticks.every(tick => tick.checked);
    const turn = (label, to, disabled) => button(label, () => this.list(to), { disabled });
    const range = total ? `${count(start + 1)} to ${count(start + rows.length)} of ${count(total)}` : "none";
    const next = start + page;
    const both = [turn("Previous", Math.max(0, start - page), start === 0), turn("Next", next, next >= total)];
    fill(this.pages, h("span", { class: "cl-small cl-muted cl-grow" }, range), both);
  }
  send(request) {
    this.model.send(request);
  }
  enable(on) {
    for (const control of this.node.querySelectorAll("button, textarea, input")) control.disabled = !on;
  }
  decide(verdict) {
    this.send({ action: "decide", verdict });
  }
  // Ctrl and Z takes back the last decision that was made here, Ctrl, Shift and Z makes it again; false: there is none.
  stepChange(by) {
    const isThere = by < 0 ? this.item?.undoes : this.item?.redoes;
    if (isThere) this.send({ action: by < 0 ? "undo" : "redo" });
    return !!isThere;
  }
  takeBack() {
    this.send({ action: "take_back" });
  }
  move(step) {
    this.send({ action: "go", place: this.item.place + step });
  }
  openEditor() {
    this.editor.hidden = false;
    this.text.value = this.item.correction || this.item.negative;
    this.text.focus();
  }
  closeEditor() {
    this.editor.hidden = true;
    this.card.focus({ preventScroll: true });
  }
  correct() {
    this.send({ action: "decide", verdict: "corrected", correction: this.text.value });
  }

  // What each message of the kernel changes. A correction that is refused stays in its field.
  receive(content, buffers) {
    const receivers = {
      file: () => {
        this.name.textContent = content.name;
        fill(
          this.faults,
          content.faults.map(fault => h("p", { class: "cl-small" }, fault)),
        );
      },
      item: () => this.receiveItem(content, buffers),
      list: () => this.receiveList(content),
      exported: () => this.receiveExported(content),
      error: () => this.status.report(content.text),
    };
    receivers[content.type]?.();
  }
  receiveExported({ text, command }) {
    this.status.report(text, true);
    this.next.hidden = !command;
    fill(this.next, h("span", { class: "cl-label" }, "To train on it"), copyable(command, "To train on it"));
  }
  receiveItem(content, buffers) {
    const first = !this.item;
    this.item = content;
    const { place, total, id, source, caption, operator, verdict, correction, counts, note, takes_back } = content;
    this.enable(true);
    this.status.report(note);
    const decided = total - (counts.open ?? 0);
    const numbers = VERDICTS.map(each => `${count(counts[each] ?? 0)} ${each}`);
    const label = `${percent(decided / total)} of ${some(total, "negative")}: ${numbers.join(", ")}`;
    fill(this.progress, track(decided / total), h("span", { class: "cl-small cl-muted", role: "status" }, label));
    const state = h("b", { class: "cl-verdict", "data-state": verdict || "open" }, verdict || "open");
    fill(
      this.head,
      state,
      h("span", {}, `${count(place + 1)} of ${count(total)}`),
      h("span", {}, operator),
      h("span", {}, /\s/.test(id) ? id : `caption ${id}`),
    );
    const line = (name, pieces) => [h("span", { class: "cl-label" }, name), h("p", { class: "cl-line" }, pieces)];
    fill(this.texts, line("Caption", marked(source)), line("Negative", marked(caption)), correction ? line("Corrected", [correction]) : []);
    if (this.url) URL.revokeObjectURL(this.url);
    this.url = bytes(buffers[0]).length ? objectURL(buffers[0]) : null;
    this.picture.hidden = !this.url;
    if (this.url) this.picture.src = this.url;
    for (const control of this.choices.querySelectorAll("[data-verdict]")) {
      control.setAttribute("aria-pressed", String(control.dataset.verdict === verdict));
      if (control.dataset.verdict === "open") control.disabled = !takes_back;
    }
    if (!this.editor.hidden || (first && document.activeElement === document.body)) this.closeEditor();
  }
  onKey(event) {
    const { target, key } = event;
    if (!hasKeyboard(this.node, target) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.stopPropagation(); // JupyterLab has uses of its own for letters, Enter and arrows
    if (!this.item) return;
    const inText = {
      Enter: () => !event.shiftKey && !event.isComposing && [this.correct()],
      Escape: () => [this.closeEditor()],
    };
    const elsewhere = {
      a: () => [this.decide("accepted")],
      r: () => [this.decide("rejected")],
      e: () => [this.openEditor()],
      u: () => this.item.takes_back && [this.takeBack()],
      n: () => [this.send({ action: "next_open" })],
      arrowleft: () => [this.move(-1)],
      arrowright: () => [this.move(1)],
    };
    if (target === this.words) return; // letters are the field's own
    const run = target === this.text ? inText[key] : elsewhere[key.toLowerCase()];
    if (run?.()) event.preventDefault();
  }
}

function render({ model, el }) {
  const app = new Review(model, el);
  return connect(app, model, { keydown: event => app.onKey(event) });
}
export default { render };
