// The runs below a folder: a table above; below it the curves, scores, differences and notes of what is selected. The
// kernel's side is complearn.apps.runs.controller.
import {
  button,
  connect,
  copyable,
  count,
  download,
  explained,
  fill,
  h,
  renew,
  scrolling,
  some,
  statusLine,
  whenReleased,
} from "./shared.js";

const COLUMNS = [
  ["run", "Name"],
  ["kind", "Kind"],
  ["method", "Method"],
  ["data", "Data"],
  ["step", "Steps"],
  ["state", "State"],
  ["score", "Scores, %"],
  ["date", "Last change"],
];
// What the names of scores mean: averages over questions.
const MEANINGS = {
  COMP: "All compositional benchmarks: their mean. It mixes binding with the recognition of nouns; read BIND first.",
  BIND: "Questions that exchange two words of a caption, so that only binding answers them.",
  NOUN: "Questions that replace a noun of a caption.",
  REL: "Questions that replace a relation of a caption.",
  ATT: "Questions that replace an attribute of a caption.",
  CLS: "Recognition: pictures by the names of their classes.",
  probing: "Linear probes: what can be read from the vectors of pictures.",
  retrieval: "The right picture among all for a caption, and the right caption for a picture.",
};
// A study's scores are named after their method too, as in `clip BIND`.
const meaningOf = score => MEANINGS[score.split(" ").pop()] ?? "";
const GROUPS = [
  ["", "no groups"],
  ["method", "method"],
  ["kind", "kind"],
  ["state", "state"],
  ["data", "data"],
];
const PANELS = [
  ["curves", "Curves"],
  ["scores", "Scores"],
  ["answers", "Answers"],
  ["difference", "Difference"],
  ["about", "Facts and notes"],
];
const POLL = 1800; // milliseconds between two questions what is new

// The name space of SVG, from the browser: this script names no address.
let space = null;
const draw = (tag, attributes = {}, ...children) => {
  space ??= new DOMParser().parseFromString("<svg></svg>", "text/html").querySelector("svg").namespaceURI;
  const node = document.createElementNS(space, tag);
  for (const [key, value] of Object.entries(attributes)) if (value != null && value !== false) node.setAttribute(key, value);
  node.append(...children);
  return node;
};

// Round numbers between two ends, at most about n.
const ticks = (low, high, n) => {
  const span = high - low || 1;
  const power = 10 ** Math.floor(Math.log10(span / n));
  const step = power * [1, 2, 5, 10].find(each => span / (power * each) <= n);
  const marks = [];
  for (let at = Math.ceil(low / step); at * step <= high + step * 1e-9; at++) marks.push(+(at * step).toPrecision(12));
  return marks;
};
const number = value => {
  const size = Math.abs(value);
  if (value !== 0 && (size < 0.001 || size >= 1e6)) return value.toExponential(1);
  return size >= 1000 ? count(Math.round(value)) : String(+value.toPrecision(4));
};

class Runs {
  constructor(model, node) {
    Object.assign(this, { model, view: {}, selected: [], panel: null, charts: new Map(), smoothing: null });
    this.status = statusLine({ role: "alert" });
    this.told = h("p", { class: "cl-small cl-told", role: "status" });
    this.remark = h("p", { class: "cl-small cl-remark" });
    this.empty = h("p", { class: "cl-empty" });
    this.question = h("div", { class: "cl-row cl-question", role: "alertdialog", "aria-label": "a question", hidden: true });
    this.head = h("tr");
    this.body = h("tbody");
    const table = h("table", {}, h("thead", {}, this.head), this.body);
    this.list = scrolling(h("div", { class: "cl-list", tabindex: "0", role: "region", "aria-label": "runs" }, table));
    this.more = button("Show more", () => this.send({ action: "show_more" }), { hidden: true });
    this.content = h("div", { class: "cl-panel", role: "tabpanel" });
    this.whenListIsFree = whenReleased(this.list);
    this.whenPanelIsFree = whenReleased(this.content);
    const parts = [this.makeTop(), this.status, this.told, this.remark, this.empty, this.list, this.more, this.question];
    this.below = h("div", {}, this.makeActions(), this.makeTabs(), this.content);
    this.node = h("div", { class: "cl cl-runs" }, ...parts, this.below);
    fill(node, this.node);
    this.size = new ResizeObserver(() => this.panel?.type === "curves" && this.drawCharts());
    this.size.observe(this.content);
    this.timer = setInterval(() => this.poll(), POLL);
  }
  makeTop() {
    this.folder = h("span", { class: "cl-small cl-muted cl-name cl-grow" });
    const later = () => {
      clearTimeout(this.typing);
      this.typing = setTimeout(() => this.send({ action: "filter_by", words: this.words.value }), 150);
    };
    this.words = h("input", { type: "search", placeholder: "Filter by words", "aria-label": "filter by words", oninput: later });
    this.group = h(
      "select",
      { "aria-label": "group by", onchange: () => this.send({ action: "group_by", group: this.group.value }) },
      GROUPS.map(([value, label]) => h("option", { value }, label)),
    );
    this.hidden = h("input", { type: "checkbox", onchange: () => this.send({ action: "show_hidden", hidden: this.hidden.checked }) });
    this.hiddenText = h("span");
    return h(
      "div",
      { class: "cl-row cl-top" },
      h("h2", {}, "Runs"),
      this.folder,
      this.words,
      h("label", { class: "cl-row cl-small" }, "Group by", this.group),
      h("label", { class: "cl-row cl-small" }, this.hidden, this.hiddenText),
    );
  }
  makeActions() {
    this.picked = h("span", { class: "cl-small cl-muted cl-grow" });
    const act = (label, action, more = {}, title = "", needs = "") =>
      Object.assign(
        button(label, () => this.send({ action, ...more }), { title }),
        { needs },
      );
    this.onSelection = [
      act("Select none", "pick_none"),
      act("Hide", "hide", { hidden: true }, "leave out of the table; nothing is deleted", "hide"),
      act("Show again", "hide", { hidden: false }, "put hidden lines back into the table", "show"),
      act("Stop…", "stop", {}, "ask the training to write a checkpoint and to end", "stop"),
      act("Resume…", "resume", {}, "go on from the last checkpoint", "resume"),
      act("Delete…", "delete", {}, "delete the folders of runs for good"),
    ];
    this.onSelection.push(act("Save as notebook", "export_notebook", {}, "a notebook that compares what is selected"));
    const save = act("Save as CSV", "export_table", {}, "what is selected, or else all lines that are shown");
    const actions = h("div", { class: "cl-row" }, this.picked, act("Select all", "pick_all"), this.onSelection, save);
    return h("div", { class: "cl-actions", role: "group", "aria-label": "what is selected" }, actions);
  }
  makeTabs() {
    this.tabs = PANELS.map(([panel, label]) =>
      button(label, () => this.send({ action: "show_panel", panel }), { role: "tab", "data-panel": panel }),
    );
    return h("div", { class: "cl-tabs", role: "tablist", "aria-label": "what is shown of the selection" }, this.tabs);
  }
  send(request) {
    this.model.send(request);
  }
  // A page that nobody sees asks nothing, and a question waits for the answer to the last one.
  poll() {
    if (document.visibilityState !== "visible" || this.waits) return;
    this.waits = true;
    this.send({ action: "poll" });
  }

  receive(content) {
    const receivers = {
      polled: () => (this.waits = false),
      table: () => this.whenListIsFree(() => this.receiveTable(content)),
      curves: () => this.show(content, () => this.showCurves(content)),
      scores: () => this.show(content, () => this.showScores(content)),
      answers: () => this.show(content, () => this.showAnswers(content)),
      onward: () => this.showOnward(content),
      difference: () => this.show(content, () => this.showDifference(content)),
      about: () => this.show(content, () => this.showAbout(content)),
      question: () => this.ask(content),
      file: () => download(content.name, content.text),
      told: () => fill(this.told, content.text),
      busy: () => this.status.report(content.text, true),
      error: () => this.receiveError(content),
    };
    if (!["polled", "busy", "error"].includes(content.type)) this.status.report("");
    receivers[content.type]?.();
  }

  receiveError({ text }) {
    this.waits = false; // the question that failed has its answer
    this.smoothing = null;
    this.status.report(text);
  }

  // the table

  receiveTable(content) {
    const { rows, count: found, total, groups, n_hidden, folder, remark, view, empty, selected, trains, can } = content;
    Object.assign(this, { view, selected });
    this.folder.textContent = folder;
    this.folder.title = folder;
    if (document.activeElement !== this.words) this.words.value = view.words;
    this.group.value = view.group;
    this.hidden.checked = view.hidden;
    this.hiddenText.textContent = `show hidden (${count(n_hidden)})`;
    fill(this.remark, remark);
    fill(this.empty, empty || (found ? "" : "No line holds all these words."));
    this.list.hidden = !found;
    this.below.hidden = !total;
    this.more.hidden = rows.length >= found;
    this.more.textContent = `Show more (${count(found - rows.length)} left)`;
    const focused = this.list.contains(document.activeElement) ? document.activeElement.dataset : null;
    const check = ["", null, () => h("th", { class: "cl-check", scope: "col", "aria-label": "selected" })];
    const order = column => column === view.sort && (view.descending ? "down" : "up");
    renew(this.head, [check, ...COLUMNS.map(([column, label]) => [column, order(column), () => this.makeHead(column, label)])]);
    const lines = [];
    const sizes = Object.fromEntries(groups);
    const wrong = text => h("tr", { class: "cl-wrong" }, h("td", { colspan: COLUMNS.length + 1 }, h("p", {}, text)));
    let last = null;
    for (const row of rows) {
      const { name, group, problem } = row;
      if (view.group && group !== last) lines.push([`group ${group}`, sizes[group], () => this.makeGroup(group, sizes[group])]);
      last = group;
      lines.push([`run ${name}`, row, () => this.makeRow(row)]);
      if (problem) lines.push([`problem ${name}`, problem, () => wrong(problem)]);
    }
    renew(this.body, lines);
    const boxes = new Map([...this.body.querySelectorAll("input[data-name]")].map(box => [box.dataset.name, box]));
    for (const row of rows) boxes.get(row.name).checked = row.selected; // also after a click that was refused
    const trained = trains ? `, ${count(trains)} in training` : "";
    this.picked.textContent = `${selected.length ? count(selected.length) : "nothing"} selected of ${some(found, "line")}${
      found < total ? ` (${count(total)} in all)` : ""
    }${trained}`;
    for (const each of this.onSelection) each.disabled = !selected.length || (each.needs && !can.includes(each.needs));
    for (const tab of this.tabs) {
      const isOn = tab.dataset.panel === view.panel;
      tab.setAttribute("aria-selected", String(isOn));
      tab.tabIndex = isOn ? 0 : -1;
    }
    this.list.dispatchEvent(new Event("scroll")); // says whether it goes on below
    if (focused && !this.list.contains(document.activeElement)) this.focusAgain(focused);
  }
  focusAgain({ name, column }) {
    const all = [...this.list.querySelectorAll("button, input")];
    all.find(each => (name ? each.dataset.name === name : each.dataset.column === column))?.focus({ preventScroll: true });
  }
  makeHead(column, label) {
    const isSorted = this.view.sort === column;
    const arrow = isSorted ? (this.view.descending ? " ▾" : " ▴") : "";
    const order = isSorted ? (this.view.descending ? "descending" : "ascending") : "none";
    const sort = button(`${label}${arrow}`, () => this.send({ action: "sort_by", column }), { "data-column": column });
    return h("th", { "data-col": column, "aria-sort": order, scope: "col" }, sort);
  }
  makeGroup(name, size) {
    return h(
      "tr",
      { class: "cl-group-row" },
      h("th", { colspan: COLUMNS.length + 1, scope: "colgroup" }, `${name}, ${some(size, "line")}`),
    );
  }
  makeRow(row) {
    const { name, kind, method, data, state, step, steps, scores, date, tags, note, hidden, selected } = row;
    const pick = () => this.send({ action: "pick", name });
    const check = h("input", { type: "checkbox", "aria-label": `select ${name}`, "data-name": name, onchange: pick });
    check.checked = selected;
    const labels = tags.map(tag => h("span", { class: "cl-mark" }, tag));
    const of = state !== "done" && steps > step ? ` of ${count(steps)}` : "";
    const numbers = scores.map(([score, value, interval]) => {
      const title = [meaningOf(score), interval].filter(Boolean).join("; ");
      return h("span", { class: "cl-score", title }, h("span", { class: "cl-muted" }, `${score} `), value);
    });
    const done = step == null ? "" : `${count(step)}${of}`;
    const about = [kind, method, done && `${done} steps`].filter(Boolean).join(", ");
    const cell = (column, ...children) => h("td", { "data-col": column }, ...children);
    const called = h("span", { class: "cl-called", title: note ? `${name}: ${note}` : name }, name);
    const first = [
      called,
      labels,
      note && h("span", { class: "cl-small cl-muted cl-note" }, note),
      h("span", { class: "cl-small cl-muted cl-also" }, about),
    ];
    return h(
      "tr",
      { class: `${selected ? "cl-chosen" : ""} ${hidden ? "cl-hidden" : ""}`, onclick: event => event.target.closest("input") || pick() },
      h("td", { class: "cl-check" }, check),
      cell("run", first),
      cell("kind", kind),
      cell("method", method),
      cell("data", data),
      cell("step", done),
      cell("state", state && h("span", { class: "cl-state", "data-state": state }, state)),
      cell("score", numbers),
      cell("date", date),
    );
  }

  // what is done to runs

  ask({ action, text, names }) {
    const answer = sure => {
      this.question.hidden = true;
      if (sure) this.send({ action, names, sure: true });
      this.list.focus();
    };
    const yes = { stop: "Stop", resume: "Resume", delete: "Delete for good" }[action];
    const no = button("Cancel", () => answer(false));
    fill(
      this.question,
      h("span", { class: "cl-grow" }, text),
      no,
      button(yes, () => answer(true), { class: "cl-primary" }),
    );
    this.question.hidden = false;
    no.focus();
  }

  // panels

  // Curves change while their slider is dragged; any other panel waits until the pointer has left it.
  show(content, make) {
    if (content.type === "curves" && this.panel?.type === "curves") this.showNow(content, make);
    else this.whenPanelIsFree(() => this.showNow(content, make));
  }
  showNow(content, make) {
    const sameKind = this.panel?.type === content.type;
    const focused = sameKind && this.content.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    this.panel = content;
    make();
    if (focused && !this.content.contains(document.activeElement))
      this.content.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  }
  // Only the curves are drawn again: the slider may be dragged, a list may be open, and a pointer may rest on a curve.
  showCurves({ panels, text, problems, weight, band, phases, snapshots }) {
    const told = ["problems", problems, () => h("div", {}, problemLines(problems))];
    const none = ["none", text, () => h("p", { class: "cl-muted" }, text)];
    const tools = ["tools", null, () => this.makeCurveTools()];
    const charts = ["charts", null, () => this.makeCharts()];
    const atPoint = ["at", null, () => this.makeAtPoint()];
    renew(this.content, panels.length ? [told, tools, charts, atPoint] : [told, none]);
    if (!panels.length) return this.charts.clear();
    this.setSmoothing(weight);
    this.bands.checked = band;
    Object.assign(this, { phases, snapshots });
    renew(
      this.chartList,
      panels.map(({ title }) => [title, null, () => this.makeChart(title)]),
    );
    const titles = panels.map(({ title }) => title);
    for (const title of this.charts.keys()) if (!titles.includes(title)) this.charts.delete(title);
    for (const panel of panels) {
      const chart = this.charts.get(panel.title);
      chart.whenFree(() => this.renewChart(chart, panel));
    }
    this.showPoint(snapshots && this.pointed);
  }
  makeCurveTools() {
    const smooth = () => {
      this.smoothing = +this.slider.value;
      this.weight.textContent = this.smoothing.toFixed(2);
      this.send({ action: "smooth", weight: this.smoothing });
    };
    const range = { type: "range", min: "0", max: "0.99", step: "0.01", "aria-label": "smoothing", "data-key": "smooth" };
    this.slider = h("input", { ...range, oninput: smooth });
    this.weight = h("output", { class: "cl-weight" });
    const show = () => this.send({ action: "show_bands", band: this.bands.checked });
    this.bands = h("input", { type: "checkbox", "data-key": "band", onchange: show });
    return h(
      "div",
      { class: "cl-row" },
      h("label", { class: "cl-row cl-small" }, "Smoothing", this.slider, this.weight),
      h("label", { class: "cl-row cl-small" }, this.bands, "one curve per method, with its 95 % band over seeds"),
    );
  }
  makeCharts() {
    this.charts.clear();
    this.chartList = h("div", { class: "cl-charts" });
    return this.chartList;
  }
  makeAtPoint() {
    this.atPoint = h("div", { class: "cl-onward", role: "status" });
    return this.atPoint;
  }
  // The kernel answers to each place of the slider, the last one last: until then the hand is right.
  setSmoothing(weight) {
    if (this.smoothing === weight) this.smoothing = null;
    if (this.smoothing != null) return;
    if (+this.slider.value !== weight) this.slider.value = weight;
    this.weight.textContent = weight.toFixed(2);
  }
  // What opens the weights at the end of the phase in which a point of a curve lies.
  showPoint(at) {
    this.pointed = at;
    const say = words => renew(this.atPoint, [["words", words, () => h("p", { class: "cl-small cl-muted" }, words)]]);
    if (!this.snapshots) return say("Select one run alone to open its weights from a point of a curve.");
    if (at == null) return say("Click a point of a curve, or press Enter there, to open the weights at the end of its phase.");
    const last = this.snapshots.at(-1)?.phase;
    const phase = this.phaseAt(at) ?? last;
    const lines = this.snapshots.find(each => each.phase === phase)?.lines;
    const said = lines
      ? `Step ${count(at)}: the weights at the end of ${phase}.`
      : `The weights of ${phase ?? "a phase"} are kept when it has ended.`;
    const parts = [["said", said, () => h("h3", {}, said)]];
    if (lines) parts.push(["lines", lines, () => h("ul", {}, lines.map(commandLine))]);
    renew(this.atPoint, parts);
  }
  phaseAt(at) {
    return this.phases.findLast(([, begins]) => begins < at)?.[0];
  }
  makeChart(title) {
    const picture = h("div", { class: "cl-picture", tabindex: "0", role: "img", "data-key": `${title} picture` });
    const said = h("p", { class: "cl-small cl-said", "aria-live": "polite" });
    const heading = h("h3", { class: "cl-row" });
    const keys = h("div", { class: "cl-row cl-keys" });
    const chart = { panel: null, picture, said, heading, keys, at: null, whenFree: whenReleased(picture) };
    picture.addEventListener("pointermove", event => this.pointAt(chart, event.offsetX));
    picture.addEventListener("pointerleave", () => this.say(chart, null));
    picture.addEventListener("click", () => chart.at != null && this.showPoint(chart.at));
    this.charts.set(title, chart);
    return h("section", { "aria-label": title }, heading, picture, said, keys);
  }
  renewChart(chart, panel) {
    const { title, unit, name, names, series } = panel;
    chart.panel = panel;
    const words = unit ? `${title}, ${unit}` : title;
    const parts = [["words", words, () => h("span", {}, words)]];
    if (names.length > 1) parts.push(["names", names, () => this.makeCurveChoice(title, names)]);
    renew(chart.heading, parts);
    const select = chart.heading.querySelector("select");
    if (select && select.value !== name) select.value = name;
    const last = series.map(({ label, y }) => `${label} ${number(y.at(-1))}`).join(", ");
    chart.picture.setAttribute("aria-label", `${title} over steps; last values: ${last}`);
    const key = ({ label, colour, dashed, n }) =>
      h(
        "span",
        { class: "cl-key" },
        h("i", { class: dashed ? "cl-dashed" : "", style: `border-color:${colour}` }),
        n > 1 ? `${label} (${some(n, "seed")})` : label,
      );
    fill(chart.keys, series.map(key));
    this.drawChart(chart);
  }
  makeCurveChoice(title, names) {
    const choose = () => this.send({ action: "choose_curve", panel: title, name: select.value });
    const select = h(
      "select",
      { "aria-label": `which ${title.toLowerCase()}`, "data-key": title, onchange: choose },
      names.map(each => h("option", { value: each }, each.replaceAll("_", " "))),
    );
    return select;
  }
  drawCharts() {
    for (const chart of this.charts.values()) if (chart.panel) this.drawChart(chart);
  }
  drawChart(chart) {
    const { series } = chart.panel;
    const width = Math.max(200, chart.picture.clientWidth);
    const height = 220;
    const box = { left: 52, right: width - 18, top: this.phases.length ? 20 : 8, bottom: height - 34 };
    const xs = series.flatMap(({ x }) => [x[0], x.at(-1)]);
    const ys = series.flatMap(({ y }) => y);
    const [first, last] = [Math.min(...xs), Math.max(...xs)];
    let [low, high] = [Math.min(...ys), Math.max(...ys)];
    const edge = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
    [low, high] = [low - edge, high + edge];
    const x = step => box.left + ((box.right - box.left) * (step - first)) / (last - first || 1);
    const y = value => box.bottom - ((box.bottom - box.top) * (value - low)) / (high - low);
    Object.assign(chart, { x, box });
    const line = (class_, from, to) => draw("path", { class: class_, d: `M${from[0]} ${from[1]}L${to[0]} ${to[1]}` });
    const text = (words, at, anchor) => {
      const node = draw("text", { x: at[0], y: at[1], "text-anchor": anchor });
      node.textContent = words;
      return node;
    };
    const parts = [];
    for (const value of ticks(low, high, 5))
      parts.push(line("cl-grid", [box.left, y(value)], [box.right, y(value)]), text(number(value), [box.left - 6, y(value) + 4], "end"));
    for (const step of ticks(first, last, Math.max(2, Math.floor(width / 110))).filter(Number.isInteger))
      parts.push(text(count(step), [x(step), box.bottom + 16], "middle"));
    this.phases.forEach(([name, begins], number) => {
      const [from, to] = [begins, this.phases[number + 1]?.[1] ?? last].map(step => Math.min(box.right, Math.max(box.left, x(step))));
      if (to <= from) return;
      const shade = draw("rect", { class: "cl-phase", x: from, y: box.top, width: to - from, height: box.bottom - box.top });
      shade.append(draw("title", {}, name));
      parts.push(shade);
      if (to - from > 7 * name.length) parts.push(text(name, [(from + to) / 2, box.top - 6], "middle"));
    });
    parts.push(
      text("steps", [(box.left + box.right) / 2, height - 4], "middle"),
      line("cl-axis", [box.left, box.bottom], [box.right, box.bottom]),
    );
    const path = (steps, values) => steps.map((step, k) => `${k ? "L" : "M"}${x(step).toFixed(1)} ${y(values[k]).toFixed(1)}`).join("");
    const clip = `cl-clip-${chart.panel.title.replaceAll(" ", "-")}`;
    const inside = draw("g", { "clip-path": `url(#${clip})` });
    for (const { colour, dashed, x: steps, y: values, low: lower, high: upper, n } of series) {
      if (n > 1) {
        const back = path(steps.toReversed(), lower.toReversed()).replace("M", "L");
        inside.append(draw("path", { class: "cl-band", fill: colour, d: `${path(steps, upper)}${back}Z` }));
      }
      inside.append(draw("path", { class: "cl-curve", stroke: colour, "stroke-dasharray": dashed ? "6 4" : null, d: path(steps, values) }));
      if (values.length === 1) inside.append(draw("circle", { cx: x(steps[0]), cy: y(values[0]), r: 3, fill: colour }));
    }
    chart.cursor = line("cl-cursor", [0, box.top], [0, box.bottom]);
    chart.cursor.setAttribute("visibility", "hidden");
    const frame = draw("rect", { x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top });
    const clipping = draw("clipPath", { id: clip }, frame);
    chart.picture.replaceChildren(
      draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height }, clipping, ...parts, inside, chart.cursor),
    );
    this.say(chart, this.stepsOf(chart).includes(chart.at) ? chart.at : null);
  }
  // The steps that have a point, of the longest curve.
  stepsOf(chart) {
    return chart.panel.series.reduce((best, { x }) => (x.length > best.length ? x : best), []);
  }
  pointAt(chart, offset) {
    const near = this.stepsOf(chart).reduce((best, step) =>
      Math.abs(chart.x(step) - offset) < Math.abs(chart.x(best) - offset) ? step : best,
    );
    this.say(chart, near);
  }
  step(chart, by) {
    const steps = this.stepsOf(chart);
    const at = chart.at == null ? (by > 0 ? -1 : steps.length) : steps.indexOf(chart.at);
    this.say(chart, steps[Math.min(steps.length - 1, Math.max(0, at + by))]);
  }
  say(chart, at) {
    chart.at = at;
    if (at == null) {
      chart.cursor?.setAttribute("visibility", "hidden");
      chart.said.textContent = "";
      return;
    }
    chart.cursor.setAttribute("visibility", "visible");
    chart.cursor.setAttribute("transform", `translate(${chart.x(at)} 0)`);
    const values = chart.panel.series.map(({ label, x, y, low, high, n }) => {
      const k = x.findLastIndex(step => step <= at);
      if (k < 0) return null;
      return n > 1 ? `${label} ${number(y[k])} [${number(low[k])}, ${number(high[k])}]` : `${label} ${number(y[k])}`;
    });
    const phase = this.phaseAt(at);
    chart.said.textContent = `step ${count(at)}${phase ? ` (${phase})` : ""}: ${values.filter(Boolean).join(", ")}`;
  }
  chooseQuestions(sets) {
    const choose = () => this.send({ action: "choose_questions", name: select.value });
    const options = sets.map(each => h("option", { value: each }, each));
    const select = h("select", { "aria-label": "questions", "data-key": "questions", onchange: choose }, options);
    return h("label", { class: "cl-row cl-small" }, "Questions", select);
  }
  chooseKind(kinds) {
    const choose = () => this.send({ action: "choose_kind", kind: select.value });
    const all = h("option", { value: "" }, "all kinds");
    const options = kinds.map(([value, label]) => h("option", { value }, label));
    const select = h("select", { "aria-label": "kind of questions", "data-key": "kind", onchange: choose }, all, options);
    return h("label", { class: "cl-row cl-small" }, "Kind", select);
  }
  // A list of choices stays while its choices stay, so that it does not close under the hand.
  setChoice(key, value) {
    const select = this.content.querySelector(`select[data-key=${key}]`);
    if (select && select.value !== value) select.value = value;
  }
  // Pictures that one run got wrong or right; or to which one of two gave the right caption and the other a wrong one, or both.
  showAnswers({ sets, chosen, kinds, kind, asked, counts, groups, items, text, can_ask, ask: label }) {
    const said = text ? [["text", text, () => h("p", { class: "cl-muted" }, text)]] : [];
    if (!sets.length) {
      const make = () => button(label, () => this.send({ action: "ask_questions" }), { class: "cl-primary", "data-key": "ask" });
      return renew(this.content, [...said, ...(can_ask ? [["ask", label, make]] : [])]);
    }
    const item = ({ winner, split, id, metric, heading, texts, pictures }) => {
      const onward = h("div", { class: "cl-onward", hidden: true });
      const open = () => this.openItem(onward, more, { split, id, winner });
      const more = button("Go on from here", open, { "aria-expanded": "false", "data-key": `${split} ${id} ${metric}` });
      return h(
        "li",
        { class: "cl-item", "data-winner": winner },
        h(
          "div",
          { class: "cl-row" },
          pictures.map((src, k) => h("img", { src, alt: `picture ${k + 1} of: ${texts[0]}` })),
        ),
        h("p", { class: "cl-small" }, h("b", {}, heading)),
        texts.map(line => h("p", { class: "cl-small" }, line)),
        h("p", {}, more),
        onward,
      );
    };
    const makeChoices = () => h("div", { class: "cl-row" }, this.chooseQuestions(sets), kinds.length > 1 && this.chooseKind(kinds));
    const makeItems = () => {
      this.opened = null;
      const group = ([winner, title]) => [
        h("h3", {}, title),
        h("ul", { class: "cl-items", tabindex: "0", "aria-label": title }, items.filter(each => each.winner === winner).map(item)),
      ];
      return h("div", { class: "cl-groups" }, groups.flatMap(group));
    };
    renew(this.content, [
      ["choices", [sets, kinds], makeChoices],
      ["asked", asked, () => h("p", { class: "cl-small cl-asked" }, asked)],
      ["counts", counts, () => h("p", { class: "cl-small cl-said" }, counts)],
      ...said,
      ["items", [groups, items], makeItems],
    ]);
    this.setChoice("questions", chosen);
    this.setChoice("kind", kind);
  }
  // One answer is open at a time.
  openItem(onward, more, place) {
    const wasOpen = this.opened?.onward === onward;
    if (this.opened) {
      this.opened.onward.hidden = true;
      this.opened.more.setAttribute("aria-expanded", "false");
    }
    this.opened = wasOpen ? null : { onward, more, place };
    if (!wasOpen) this.send({ action: "go_on", ...place });
  }
  // The lines that open an answer's picture and captions in other apps.
  showOnward({ split, id, winner, lines, text }) {
    const { onward, more, place } = this.opened ?? {};
    if (place?.split !== split || place.id !== id || place.winner !== winner) return; // another one was opened since
    fill(onward, h("p", { class: "cl-small cl-muted" }, text), h("ul", {}, lines.map(commandLine)));
    onward.hidden = false;
    more.setAttribute("aria-expanded", "true");
  }
  showScores({ columns, kinds, rows, sets, chosen, asked, text }) {
    if (!sets.length) return fill(this.content, h("p", { class: "cl-muted" }, text));
    const said = h(
      "p",
      { class: "cl-small cl-said", "aria-live": "polite" },
      "Point at a number, or go to it with the tab key, to see its interval here.",
      kinds.length > 0 && " Click it to see the answers that it counts.",
    );
    const cell = (value, column) => {
      if (!value) return h("td", { class: "cl-none" }, "–");
      const say = () => fill(said, value.about);
      const shade = `--cl-share:${(100 * value.share).toFixed(0)}%`;
      const about = { title: value.about, onfocus: say, onpointerenter: say };
      const note = value.note ? h("small", { class: "cl-small cl-note" }, ` ${value.note}`) : null;
      if (!kinds.length) return h("td", { class: "cl-heat", style: shade, tabindex: "0", ...about }, value.text, note);
      const go = () => this.send({ action: "show_answers", name: chosen, kind: kinds[column] });
      const key = `${value.about}`;
      return h(
        "td",
        { class: "cl-heat", style: shade },
        h("button", { type: "button", "data-key": key, onclick: go, ...about }, value.text, note),
      );
    };
    const head = h(
      "tr",
      {},
      h("th", {}, "run"),
      columns.map(name => h("th", { scope: "col" }, MEANINGS[name] ? explained(name, MEANINGS[name]) : name)),
    );
    const lines = rows.map(({ label, cells }) => h("tr", {}, h("th", { scope: "row" }, label), cells.map(cell)));
    const table = h("table", { class: "cl-map" }, h("thead", {}, head), h("tbody", {}, lines));
    const list = h("div", { class: "cl-wide", tabindex: "0", role: "region", "aria-label": "scores" }, table);
    renew(this.content, [
      ["scores", sets, () => this.chooseQuestions(sets)],
      ["counted", asked, () => h("p", { class: "cl-small cl-asked" }, asked)],
      ["said", [columns, kinds, rows, chosen], () => said], // which the list fills
      ["list", [columns, kinds, rows, chosen], () => list],
    ]);
    this.setChoice("questions", chosen);
  }
  showDifference({ names, rows, titles, text }) {
    if (!rows.length) return fill(this.content, h("p", { class: "cl-muted" }, text));
    const head = h(
      "tr",
      {},
      ["setting", ...names].map(name => h("th", { scope: "col" }, name)),
    );
    const lines = rows.map(([key, one, other], n) =>
      h("tr", {}, h("th", { scope: "row", title: key }, titles[n]), h("td", {}, one), h("td", {}, other)),
    );
    const table = h("table", { class: "cl-plain" }, h("thead", {}, head), h("tbody", {}, lines));
    fill(this.content, h("div", { class: "cl-wide", tabindex: "0", role: "region", "aria-label": "difference" }, table));
  }
  showAbout({ name, facts, commands, both, tags, note, count: selected, text }) {
    if (!name) return fill(this.content, h("p", { class: "cl-muted" }, text));
    const writing = this.content.contains(document.activeElement) && this.content.dataset.name === name;
    if (writing && ["tags", "note"].includes(document.activeElement.dataset.key)) return; // nobody types over the writer
    this.content.dataset.name = name;
    const change = (action, key) => event => this.send({ action, [key]: event.target.value });
    const tagged = h("input", { value: tags, "aria-label": "tags", "data-key": "tags", onchange: change("write_tags", "tags") });
    const written = h("textarea", { rows: "4", "aria-label": "note", "data-key": "note", onchange: change("write_note", "text") }, note);
    const many =
      selected > 1 ? h("p", { class: "cl-small cl-remark" }, `${selected} are selected: tags and note are written to all of them.`) : null;
    const list = facts.flatMap(([key, value]) => [h("dt", { class: "cl-muted" }, key), h("dd", {}, value)]);
    fill(
      this.content,
      h("h3", {}, name),
      h(
        "div",
        { class: "cl-about" },
        h("dl", {}, list),
        h(
          "div",
          {},
          many,
          h("label", {}, h("span", { class: "cl-label" }, "Tags, with spaces between them"), tagged),
          h("label", {}, h("span", { class: "cl-label" }, "Note"), written),
          both.length ? h("span", { class: "cl-label" }, "What you can do with both runs") : null,
          both.map(command => copyable(command, command)),
          commands.length
            ? h("span", { class: "cl-label" }, both.length ? `What you can do with ${name}` : "What you can do with it")
            : null,
          commands.map(command => copyable(command, command)),
        ),
      ),
    );
  }
  moveBy(input, by) {
    const all = [...this.body.querySelectorAll("input")];
    all[all.indexOf(input) + by]?.focus();
  }
  // Arrows walk through the lines, the tabs and the steps of a curve; Escape takes a question back. JupyterLab has uses of
  // its own for such keys.
  onKey(event) {
    const { target, key } = event;
    if (!this.node.contains(target) || event.ctrlKey || event.metaKey) return;
    const chart = [...this.charts.values()].find(each => each.picture === target);
    const across = { ArrowLeft: -1, ArrowRight: 1 }[key];
    const down = { ArrowUp: -1, ArrowDown: 1 }[key];
    event.stopPropagation(); // letters, Enter and other arrows are the field's and the buttons' own
    if (key === "Escape" && !this.question.hidden) this.question.querySelector("button").click();
    else if (across && chart) this.step(chart, across);
    else if (key === "Enter" && chart && chart.at != null) this.showPoint(chart.at);
    else if (across && this.tabs.includes(target)) this.tabs[this.tabs.indexOf(target) + across]?.focus();
    else if (down && target.matches("input[data-name]")) this.moveBy(target, down);
    else return;
    event.preventDefault();
  }
  close() {
    clearInterval(this.timer);
    this.size.disconnect();
  }
}

// A line for a terminal, under what it is for.
const commandLine = ({ title, command }) => h("li", {}, h("span", { class: "cl-label" }, title), copyable(command, title));

const problemLines = problems => problems.map(problem => h("p", { class: "cl-small cl-remark" }, problem));

function render({ model, el }) {
  const app = new Runs(model, el);
  const disconnect = connect(app, model, { keydown: event => app.onKey(event) });
  return () => {
    app.close();
    disconnect();
  };
}
export default { render };
