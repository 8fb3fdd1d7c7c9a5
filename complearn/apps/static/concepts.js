// The concepts of some captions: a search with suggestions on the left; on the right one concept, what it is made of, the
// predicates that take it, what it is a part of, and its pictures. The kernel's side is complearn.apps.concepts.controller.
import {
  button,
  bytes,
  connect,
  count,
  download,
  drawTree,
  explained,
  fill,
  h,
  picture,
  scrolling,
  some,
  statusLine,
  toggle,
  track,
} from "./shared.js";

// What the words and numbers mean.
const MEANINGS = {
  concepts: "A concept is a phrase of the captions, together with the pictures that show it.",
  predicates:
    "A predicate is what is left of a phrase without its parts: in “a dog on grass”, made of “a dog” and “grass”, it is “… on …”, where … is the place of a part.",
  primitives: "A primitive is a concept that is not made of others, such as a single noun.",
  captions: "The number of captions in which this is so.",
  images: "The number of pictures that show the concept.",
  score:
    "How well the phrase fits the picture, as this model sees it: higher fits better. Scores of one model can be compared with each other, not with those of another model.",
};
MEANINGS.concept = MEANINGS.concepts;
MEANINGS.primitive = MEANINGS.primitives;

// The labels of a tree in words.
const LABELS = {
  NP: "noun phrase",
  VP: "verb phrase",
  PP: "preposition's phrase",
  ADJP: "adjective phrase",
  ADVP: "adverb phrase",
  S: "sentence",
  SBAR: "clause",
  NN: "noun",
  NNS: "plural noun",
  NNP: "name",
  NNPS: "names",
  DT: "determiner",
  PRP$: "possessive",
  PRP: "pronoun",
  JJ: "adjective",
  JJR: "comparative",
  JJS: "superlative",
  CD: "number",
  IN: "preposition",
  TO: "to",
  CC: "and, or",
  RB: "adverb",
  RP: "particle",
  VB: "verb",
  VBD: "verb",
  VBG: "verb in -ing",
  VBN: "participle",
  VBP: "verb",
  VBZ: "verb",
  MD: "modal verb",
  WP: "question word",
  WDT: "question word",
  WRB: "question word",
  EX: "there",
};
const inWords = label => LABELS[label] ?? LABELS[label.split("-")[0]] ?? label;

// A predicate with … in the place of each part, or with the parts themselves.
const phrase = (predicate, parts = []) => {
  const pieces = predicate.split(/(\[[^\]]+\])/);
  const blanks = (pieces.length - 1) / 2;
  const fits = blanks === parts.length;
  const inline = pieces.map((piece, k) => (k % 2 ? (fits ? parts[(k - 1) / 2] : "…") : piece.trim() && h("span", {}, piece.trim())));
  return fits || !parts.length ? inline : [...inline, ...parts];
};
const plainPhrase = predicate => predicate.replace(/\[[^\]]+\]/g, "…");
// What follows a line of a list: its number, with a bar where the numbers of the list differ.
const numbered = (values, noun) => {
  const most = Math.max(1, ...values);
  const bars = new Set(values).size > 1;
  return value => [
    bars && h("span", { class: "cl-bar" }, track(value / most)),
    h("span", { class: "cl-number", title: some(value, noun) }, count(value)),
  ];
};

class Concepts {
  constructor(model, node) {
    Object.assign(this, { model, asked: 0, concept: null, sentence: null, wanted: null, stale: false });
    this.status = statusLine({ role: "alert" });
    const body = h("div", { class: "cl-split" }, this.makeSearch(), this.makeConcept());
    this.node = h("div", { class: "cl cl-concepts" }, this.makeTop(), body);
    fill(node, this.node);
  }
  makeTop() {
    this.numbers = h("span", { class: "cl-small cl-muted cl-grow" });
    return h("div", { class: "cl-row cl-top" }, h("h2", {}, "Concepts"), this.numbers);
  }
  makeSearch() {
    const placeholder = "such as: a dog";
    this.text = h("input", { type: "search", placeholder, "aria-label": "concept to search", spellcheck: "false", autocomplete: "off" });
    this.text.addEventListener("input", () => this.searchSoon());
    this.found = scrolling(h("div", { class: "cl-entries cl-found", role: "group", "aria-label": "concepts that are found" }));
    this.more = h("p", { class: "cl-small cl-muted" });
    const heads = [h("span", { class: "cl-grow" }, explained("concept", MEANINGS.concept)), explained("images", MEANINGS.images)];
    const columns = h("div", { class: "cl-row cl-small cl-muted cl-columns" }, heads);
    this.remark = h("p", { class: "cl-small cl-remark" });
    return h(
      "div",
      { class: "cl-side" },
      h("section", { "aria-label": "search" }, h("h3", {}, "Search"), this.text, columns, this.found, this.more),
      this.remark,
    );
  }
  makeConcept() {
    const part = label => {
      const head = h("h3", { class: "cl-row" });
      const help = h("p", { class: "cl-small cl-muted" });
      const lines = scrolling(h("div", { class: "cl-lines" }));
      return Object.assign(h("section", { "aria-label": label }, head, help, lines), { head, help, lines });
    };
    this.heading = h("div", { class: "cl-heading" });
    this.parts = part("made of");
    this.relations = part("relations");
    this.wholes = part("part of");
    this.pictures = part("pictures");
    this.pictures.lines.className = "cl-pictures";
    this.empty = h("p", { class: "cl-muted" }, "Search a concept, or take one from the list.");
    const grid = h("div", { class: "cl-graph" }, h("div", {}, this.parts, this.relations), this.wholes);
    this.shown = h("div", { class: "cl-shown", hidden: true }, this.heading, grid, this.pictures);
    this.older = h("p", { class: "cl-muted", hidden: true });
    return h("div", { class: "cl-main" }, this.status, this.older, this.makeSentence(), this.empty, this.shown);
  }
  makeSentence() {
    const open = () => this.send({ action: "open_model", source: +this.models.value }, "scoring");
    this.models = h("select", { "aria-label": "model that scores", hidden: true, onchange: open });
    this.another = button("Another picture", () => this.send({ action: "another_picture" }, "scoring"));
    const correct = button("Correct the tree", () => this.editTree(true), { "data-edit": "tree" });
    const close = button("Close", () => this.send({ action: "close_sentence" }), { title: "Escape" });
    this.tree = h("div", { class: "cl-tree", role: "group", "aria-label": "constituents" });
    this.pair = h("div", { class: "cl-row cl-pair" });
    this.detail = h("p", { class: "cl-row cl-detail", "aria-live": "polite" });
    this.sentenceNote = h("p", { class: "cl-small cl-remark" });
    this.unscored = h("p", { class: "cl-small cl-muted" });
    this.key = h("p", { class: "cl-small cl-muted" });
    this.treeText = h("textarea", { rows: "4", "aria-label": "the tree as it should be, in brackets", spellcheck: "false" });
    const keep = button("Keep this tree", () => this.send({ action: "correct", tree: this.treeText.value }, "checking"), {
      class: "cl-primary",
      "data-keep": "tree",
    });
    this.takeBack = button("As the parser found it", () => this.send({ action: "correct", tree: "" }, "parsing"));
    const cancel = button("Cancel", () => this.editTree(false));
    this.editor = h(
      "section",
      { "aria-label": "correction of the tree", hidden: true },
      this.treeText,
      h("div", { class: "cl-row" }, keep, this.takeBack, cancel),
    );
    this.sentenceHead = h("span", { class: "cl-grow" });
    const head = h("h3", { class: "cl-row" }, this.sentenceHead, this.models, this.another, correct, close);
    this.sentencePart = h(
      "section",
      { class: "cl-sentence", "aria-label": "sentence", hidden: true },
      head,
      this.sentenceNote,
      this.tree,
      this.key,
      this.unscored,
      this.editor,
      this.detail,
      this.pair,
    );
    return this.sentencePart;
  }
  editTree(on) {
    this.editor.hidden = !on;
    if (!on) return;
    this.treeText.value = this.sentence.tree;
    this.treeText.focus();
  }
  send(request, busy = "") {
    if (busy) this.status.report(busy, true);
    this.model.send(request);
  }
  open(text, predicate = "") {
    this.wanted = text;
    this.send({ action: "open_concept", text, predicate });
  }
  // What was open before, while what is wanted now cannot be opened.
  setStale(stale) {
    this.stale = stale;
    this.older.hidden = !stale || this.concept == null;
    this.older.textContent = `Still open: ${this.concept}`;
    for (const part of [this.shown, this.sentencePart]) part.classList.toggle("cl-stale", stale);
  }
  search(text) {
    clearTimeout(this.asked);
    this.send({ action: "search", text });
  }
  // While somebody types, the kernel is asked when the hand rests.
  searchSoon() {
    clearTimeout(this.asked);
    this.asked = setTimeout(() => this.search(this.text.value), 120);
  }

  // What each message of the kernel changes. An error stays until something works.
  receive(content, buffers) {
    const receivers = {
      graph: () => this.receiveGraph(content),
      found: () => this.receiveFound(content),
      concept: () => this.receiveConcept(content),
      pictures: () => this.receivePictures(content, buffers),
      sentence: () => this.receiveSentence(content, buffers),
      table: () => download(content.name, content.text),
      busy: () => this.status.report(content.text, true),
      error: () => this.receiveError(content),
    };
    if (!["busy", "error"].includes(content.type) && (content.type !== "found" || this.stale)) {
      this.status.report("");
      this.setStale(false);
    }
    receivers[content.type]?.();
  }
  receiveGraph({ numbers, note }) {
    const part = ([name, number]) => {
      const text = `${count(number)} ${name}`;
      return name in MEANINGS && !["captions", "images"].includes(name) ? explained(text, MEANINGS[name]) : text;
    };
    fill(
      this.numbers,
      numbers.flatMap((entry, k) => (k ? [", ", part(entry)] : [part(entry)])),
    );
    this.remark.textContent = note;
  }
  receiveError({ text }) {
    this.status.report(text);
    if (this.wanted == null) return;
    this.wanted = null;
    this.setStale(true);
    if (!this.found.querySelector("button")) fill(this.found); // the error says it
  }
  receiveFound({ query, rows, more }) {
    if (document.activeElement !== this.text) this.text.value = query;
    const number = numbered(
      rows.map(([, , images]) => images),
      "image",
    );
    const entry = ([text, , images]) =>
      toggle([h("span", { class: "cl-grow" }, text), ...number(images)], text === this.concept, () => this.open(text), {
        title: `${text}: ${some(images, "image")}`,
        "data-concept": text,
      });
    this.more.textContent = more ? `The ${count(rows.length)} in most images; type words to see others.` : "";
    fill(
      this.found,
      rows.length ? rows.map(entry) : h("p", { class: "cl-muted" }, "No concept holds these words in this order; search for one of them."),
    );
  }
  receiveConcept(content) {
    const { text, primitive, images, captions, predicate } = content;
    const focused = this.shown.contains(document.activeElement) ? document.activeElement : null;
    [this.concept, this.wanted] = [text, null];
    this.empty.hidden = Boolean(text);
    this.shown.hidden = !text;
    if (!text) return this.closeConcept();
    for (const entry of this.found.querySelectorAll("[data-concept]"))
      entry.setAttribute("aria-pressed", String(entry.dataset.concept === text));
    const kind = primitive ? "primitive" : "concept";
    const facts = [explained(kind, MEANINGS[kind]), `, in ${some(captions, "caption")} of ${some(images, "image")}`];
    fill(this.heading, h("h2", { tabindex: "-1" }, text), h("span", { class: "cl-muted" }, facts));
    const chip = concept => button(concept, () => this.open(concept), { "data-jump": concept });
    const list = (part, label, name, line, help, nothing) => {
      const rows = content[name];
      const total = content[`n_${name}`];
      const number = numbered(
        rows.map(row => row[row.length - 1]),
        "caption",
      );
      const of = total > rows.length ? `, the ${count(rows.length)} most frequent of ${count(total)}` : "";
      const unit = rows.length ? h("span", { class: "cl-small cl-unit" }, explained("captions", MEANINGS.captions)) : null;
      fill(part.head, h("span", { class: "cl-grow" }, label, of), unit);
      fill(part.help, rows.length ? help : null);
      fill(
        part.lines,
        rows.length
          ? rows.map(row => h("div", { class: "cl-line" }, line(row), number(row[row.length - 1])))
          : h("p", { class: "cl-muted" }, nothing),
      );
    };
    const made = ([name, parts]) => h("div", { class: "cl-row cl-grow cl-phrase-line" }, phrase(name, parts.map(chip)));
    list(this.parts, "Made of", "parts", made, "The phrase; its parts are buttons that open them.", "Nothing: it is a single word.");
    const related = ([name, example]) => {
      const on = name === predicate;
      return h(
        "div",
        { class: "cl-row cl-grow" },
        toggle(plainPhrase(name), on, () => this.open(text, on ? "" : name), { "data-predicate": name }),
        h("span", { class: "cl-small cl-muted cl-grow" }, `such as: ${example}`),
      );
    };
    const around = ["Phrases around it, by ", explained("predicate", MEANINGS.predicates)];
    const choose = "… is the place of a part. Choose one to see those phrases and their pictures alone.";
    list(this.relations, around, "relations", related, choose, "None: it is always a whole caption.");
    const above = ([, whole]) =>
      h(
        "div",
        { class: "cl-grow" },
        button(whole, () => this.open(whole), { "data-jump": whole }),
      );
    const longer = "Longer phrases that hold it; each opens as a concept.";
    const head = predicate ? `Part of, where the phrase is “${plainPhrase(predicate)}”` : "Part of";
    list(this.wholes, head, "wholes", above, longer, "Nothing: it is always a whole caption.");
    if (!focused || focused.isConnected) return;
    const same = [...this.relations.lines.querySelectorAll("button")].find(each => each.dataset.predicate === focused.dataset.predicate);
    (same ?? this.heading.firstChild).focus({ preventScroll: true }); // what was clicked is gone: the keyboard stays here
  }
  // The view that was gone back to has no concept.
  closeConcept() {
    this.concept = null;
    for (const entry of this.found.querySelectorAll("[data-concept]")) entry.setAttribute("aria-pressed", "false");
  }
  receivePictures({ start, total, page, rows, n_picked, note }, buffers) {
    const tile = ({ image, ids, captions, picked }, k) => {
      const drawn = bytes(buffers[k]).length ? picture(buffers[k], "") : null; // its caption is written below
      const attributes = { title: captions.join("\n"), "data-image": image };
      const show = toggle(
        [drawn, h("span", {}, drawn ? captions[0] : captions.join(" · "))],
        picked,
        () => this.send({ action: "pick", image }),
        attributes,
      );
      const trees = ids.map((id, n) =>
        button(n ? `${n + 1}` : "Tree", () => this.send({ action: "open_sentence", id }, "opening the tree"), {
          title: `tree of: ${captions[n]}`,
          "data-tree": id,
        }),
      );
      return h("div", { class: "cl-tile" }, show, h("div", { class: "cl-group" }, trees));
    };
    const next = start + rows.length;
    const turn = (label, to, disabled) => button(label, () => this.send({ action: "show_page", start: to }), { disabled });
    const label = `Pictures ${count(start + 1)} to ${count(next)} of ${count(total)}${n_picked ? `, ${count(n_picked)} selected` : ""}`;
    const clear = n_picked ? button("Select none", () => this.send({ action: "clear" })) : null;
    const save = button("Save as CSV", () => this.send({ action: "export_table" }), {
      title: "the captions of the selected pictures; of all, where none is",
    });
    const turns = total > page ? [turn("Previous", Math.max(0, start - page), start === 0), turn("Next", next, next >= total)] : [];
    const focused = this.pictures.lines.contains(document.activeElement) ? document.activeElement.dataset.image : null;
    fill(this.pictures.head, h("span", { class: "cl-grow" }, label), turns, clear, save);
    fill(this.pictures.lines, note ? h("p", { class: "cl-small cl-remark" }, note) : null, rows.map(tile));
    for (const each of this.pictures.lines.querySelectorAll("[data-image]")) if (focused && each.dataset.image === focused) each.focus();
  }
  // A concept of the tree is a button: what has the keyboard or the pointer shows its two scores.
  receiveSentence(content, buffers) {
    const inside = this.sentencePart.contains(document.activeElement);
    this.sentencePart.hidden = !content.text;
    if (!content.text) {
      const opener = [...this.pictures.lines.querySelectorAll("[data-tree]")].find(each => each.dataset.tree === this.sentence?.id);
      if (inside) (opener ?? this.text).focus({ preventScroll: true });
      return;
    }
    const fresh = this.sentence?.id !== content.id;
    this.sentence = content;
    const { words, cells, nodes, note, corrected, images, models, model, unscored } = content;
    this.sentenceNote.textContent = note;
    this.unscored.textContent = unscored;
    fill(
      this.models,
      models.map((name, value) => h("option", { value }, name)),
    );
    const scores = ["Sentence, each concept with its ", explained("score", MEANINGS.score), " for its own picture | for the other"];
    fill(this.sentenceHead, model ? scores : "Sentence");
    this.models.hidden = !models.length;
    this.models.value = Math.max(0, models.indexOf(model));
    this.takeBack.hidden = !corrected;
    this.editor.hidden = true;
    const score = value => (value == null ? "" : value.toFixed(2));
    const made = (cell, attributes) => {
      const [label, , , , number] = cell;
      if (number < 0) return h("span", { ...attributes, title: `${label}: ${attributes.title}` }, inWords(label));
      const { own, other } = nodes[number];
      const sign = own == null || own === other ? "" : own > other ? "own" : "other";
      const show = () => this.showNode(number);
      const numbers = own == null ? null : h("small", {}, `${score(own)} | ${score(other)}`);
      return button([inWords(label), numbers], show, {
        ...attributes,
        class: `${attributes.class} cl-node`,
        "data-node": number,
        "data-sign": sign,
        onmouseenter: show,
        onfocus: show,
      });
    };
    drawTree(this.tree, words, cells, made);
    const colour = (sign, label) => h("span", { class: "cl-node", "data-sign": sign }, label);
    const scored = nodes.some(({ own }) => own != null);
    const colours = scored ? [colour("own", "its own picture scores higher"), " ", colour("other", "the other scores higher"), ". "] : [];
    const help = `Boxes are concepts. Point at one, or go to it by Tab, to see its ${scored ? "scores" : "phrase"}.`;
    fill(this.key, colours, cells.length ? help : null);
    this.bars = ["its own picture", "another picture"].map(label => h("figcaption", {}, label));
    const frame = (label, k) =>
      bytes(buffers[k]).length
        ? h("figure", {}, picture(buffers[k], label), this.bars[k], h("span", { class: "cl-small cl-muted" }, images[k]))
        : null;
    fill(this.pair, ["its own picture", "another picture"].map(frame));
    this.another.hidden = !images[1];
    this.showNode(0);
    if (fresh) this.sentencePart.scrollIntoView({ block: "nearest" });
  }
  showNode(number) {
    const node = this.sentence.nodes[number];
    fill(this.detail);
    if (!node) return;
    const { text, own, other } = node;
    for (const each of this.tree.querySelectorAll("[data-node]")) each.classList.toggle("cl-shown-node", +each.dataset.node === number);
    const gap =
      own == null
        ? ""
        : `${own.toFixed(3)} for its own picture, ${other.toFixed(3)} for the other (${own >= other ? "+" : "−"}${Math.abs(own - other).toFixed(3)})`;
    fill(
      this.detail,
      h("b", {}, text),
      h("span", {}, gap),
      button("Open the concept", () => this.open(text), { "data-jump": text }),
    );
    ["its own picture", "another picture"].forEach(
      (label, k) => (this.bars[k].textContent = own == null ? label : `${label}: ${[own, other][k].toFixed(3)}`),
    );
  }
  // Enter opens what is typed; arrows go through the list below; Alt and an arrow go to the view before and after.
  onKey(event) {
    const { target, key } = event;
    if (!this.node.contains(target)) return;
    const step = { ArrowLeft: -1, ArrowRight: 1 }[key];
    const entries = [this.text, ...this.found.querySelectorAll("button")];
    const place = entries.indexOf(target);
    const to = place + ({ ArrowUp: -1, ArrowDown: 1 }[key] ?? 0);
    if (event.altKey && step) this.stepView(step);
    else if (key === "Escape" && this.sentencePart.contains(target))
      this.editor.hidden ? this.send({ action: "close_sentence" }) : this.editTree(false);
    else if (target === this.text && key === "Enter" && !event.isComposing) {
      this.search(this.text.value);
      this.open(this.text.value);
    } else if (place >= 0 && to !== place && entries[to]) entries[to].focus();
    else {
      if (!event.ctrlKey && !event.metaKey) event.stopPropagation(); // letters, Enter and arrows are the field's and the buttons' own
      return;
    }
    event.stopPropagation();
    event.preventDefault();
  }
}

function render({ model, el }) {
  const app = new Concepts(model, el);
  return connect(app, model, { keydown: event => app.onKey(event) });
}
export default { render };
