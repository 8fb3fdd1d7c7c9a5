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
const present = children => children.flat(Infinity).filter(child => child != null && child !== false);
export const fill = (node, ...children) => node.replaceChildren(...present(children));

// Fill a node with parts [key, data, make]. A part whose data are those of the last time stays the node that it was, with
// its focus, its open list and whatever is pressed or dragged in it.
export const renew = (node, parts) => {
  const known = node.renewed ?? new Map();
  node.renewed = new Map();
  const wanted = parts.map(([key, data, make]) => {
    const text = JSON.stringify(data);
    const last = known.get(key);
    const child = last?.text === text && last.child.parentNode === node ? last.child : make();
    node.renewed.set(key, { text, child });
    return child;
  });
  const staying = new Set(wanted);
  for (const child of [...node.childNodes]) if (!staying.has(child)) child.remove();
  wanted.forEach((child, k) => {
    if (node.childNodes[k] !== child) node.insertBefore(child, node.childNodes[k] ?? null);
  });
};

// A click belongs to the node on which the pointer went down: what is drawn again in between takes the click away. Returns
// a function that does something at once, or after the pointer has left a node that it is down on; only the last of
// several things is done then.
const UNTIL_CLICKED = 60; // milliseconds; a finger's click comes a little after the finger
export const whenReleased = node => {
  let isDown = false;
  let waiting = null;
  let timer = 0;
  const ends = ["pointerup", "pointercancel", "contextmenu", "blur"]; // a menu of the browser takes the pointer away
  const release = ({ type, target }) => {
    if (type === "blur" && target !== window) return; // of a part of the page
    for (const name of ends) window.removeEventListener(name, release, true);
    timer = setTimeout(() => {
      isDown = false;
      const act = waiting;
      waiting = null;
      act?.();
    }, UNTIL_CLICKED);
  };
  const press = ({ button: which, target }) => {
    if (which || target.closest("select")) return; // another button, or a list that opens above the page
    clearTimeout(timer);
    isDown = true;
    for (const name of ends) window.addEventListener(name, release, true);
  };
  node.addEventListener("pointerdown", press, true);
  return act => {
    if (isDown) waiting = act;
    else act();
  };
};

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

// --- what a word, a number or a control means

// A meaning is shown while the pointer rests on its place or on the meaning itself, while the keyboard is there, and after a
// tap until something else is tapped. Escape puts it away. One meaning is shown at a time, above the page, so that no list
// cuts it off.
const UNTIL_SHOWN = 150; // milliseconds that the pointer rests on the place
const UNTIL_HIDDEN = 150; // in which it may go on to the meaning
let meanings = 0;
let shownMeaning = null; // the node that it is of, the node that it is placed at, the one that it describes, and its tip
let meaningTimer = 0;
const makeTip = text => {
  meanings += 1;
  const id = `cl-meaning-${meanings}-${Math.random().toString(36).slice(2, 8)}`; // two apps on one page have their own
  const listeners = { onpointerenter: event => leaveMeaning(event), onpointerleave: event => leaveMeaning(event) };
  return h("span", { class: "cl-meaning", role: "tooltip", id, popover: "manual", ...listeners }, text);
};
const hideMeaning = () => {
  clearTimeout(meaningTimer);
  const { tip, keys, isPassing } = shownMeaning ?? {};
  shownMeaning = null;
  if (isPassing) {
    keys.removeAttribute("aria-describedby");
    tip.remove();
  } else if (tip?.isConnected) tip.hidePopover?.();
};
const showMeaning = (node, place, keys, meaning) => {
  clearTimeout(meaningTimer);
  if (shownMeaning?.node === node) return;
  hideMeaning();
  const isPassing = typeof meaning === "function"; // its text is that of the moment, so its tip is there only while it is shown
  const text = isPassing ? meaning() : "";
  if (!node.isConnected || (isPassing && !text)) return;
  const tip = isPassing ? makeTip(text) : meaning;
  shownMeaning = { node, place, keys, tip, isPassing };
  if (isPassing) {
    (node.closest(".cl") ?? document.body).append(tip);
    keys.setAttribute("aria-describedby", tip.id);
  }
  tip.showPopover?.();
  placeMeaning();
};
const leaveMeaning = ({ pointerType }) => {
  if (pointerType === "touch") return; // a finger leaves what it taps
  clearTimeout(meaningTimer);
  meaningTimer = setTimeout(() => {
    const { node, keys, tip } = shownMeaning ?? {};
    if (node && !node.matches(":hover") && !tip.matches(":hover") && !keys.matches(":focus-visible")) hideMeaning();
  }, UNTIL_HIDDEN);
};
const placeMeaning = () => {
  const { place, tip } = shownMeaning ?? {};
  if (!tip?.isConnected) return;
  if (!place.isConnected) return hideMeaning();
  const { left, top, bottom } = place.getBoundingClientRect();
  const { width, height } = tip.getBoundingClientRect();
  const frame = place.closest(".cl")?.getBoundingClientRect() ?? { left: 0, right: window.innerWidth };
  const [first, last] = [Math.max(8, frame.left), Math.min(window.innerWidth - 8, frame.right) - width];
  const below = bottom + 6 + height <= window.innerHeight;
  tip.style.left = `${Math.max(first, Math.min(left, last))}px`;
  tip.style.top = `${below ? bottom + 6 : Math.max(8, top - height - 6)}px`;
};
// Give a node a meaning: a tip that is on the page, or a function that returns its text. The keyboard finds it at `keys`.
// A control has a use of its own for a click, so only one that is reached by a key says what it is.
export const withMeaning = (node, meaning, keys = node) => {
  const isControl = target => target.closest("button, a, input, select, textarea") && !target.closest(".cl-term");
  const show = place => showMeaning(node, place, keys, meaning);
  node.addEventListener("pointerenter", ({ pointerType }) => {
    if (pointerType === "touch") return;
    clearTimeout(meaningTimer);
    if (shownMeaning?.node !== node) meaningTimer = setTimeout(() => show(node), UNTIL_SHOWN);
  });
  node.addEventListener("pointerleave", leaveMeaning);
  node.addEventListener("click", ({ target }) => !isControl(target) && show(node));
  node.addEventListener("input", hideMeaning); // it may have another meaning by now
  keys.addEventListener("focus", () => (!isControl(keys) || keys.matches(":focus-visible")) && show(keys));
  keys.addEventListener("blur", () => shownMeaning?.keys === keys && hideMeaning());
  return node;
};
// A word or a number that says what it means.
export const explained = (content, meaning, attributes = {}) => {
  const tip = makeTip(meaning);
  const node = h("button", { type: "button", ...attributes, class: "cl-term", "aria-describedby": tip.id }, content);
  return h("span", { class: "cl-explained" }, withMeaning(node, tip), tip);
};

// Save a text as a file of the browser's user.
export const download = (name, text) => {
  const url = URL.createObjectURL(new Blob([text]));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
};

// Copy a text, and say whether the browser allowed it.
export const copyText = (text, said, where) => {
  const copied = navigator.clipboard?.writeText(text) ?? Promise.reject();
  copied.then(
    () => fill(said, "copied to the clipboard"),
    () => fill(said, `the browser did not let this page copy; copy ${where}`),
  );
};

// A line of code with a button that copies it.
export const copyable = (text, name) => {
  const said = h("span", { class: "cl-small cl-muted", role: "status" });
  const copy = button("Copy", () => copyText(text, said, "the line above"), { "aria-label": `copy: ${name}` });
  return [h("pre", { class: "cl-code", tabindex: "0", "aria-label": name }, text), h("div", { class: "cl-row" }, copy, said)];
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

// --- what is seen has an address

// The kernel says after every change what is seen, as `model=a&code=3`. A served page is an app's own: there the address is
// the location's hash and the browser's history has those before and after. In a notebook the widget's synced state has them.
const PAUSE = 1000; // milliseconds; quicker changes of what follows a hand, such as a slider's value, are one change

const keysOf = address => address.split("&").map(part => part.split("=")[0]);
const changedKeys = (before, after) => {
  const parts = address => new Set(address.split("&"));
  const [old, fresh] = [parts(before), parts(after)];
  const apart = [...old, ...fresh].filter(part => part && !(old.has(part) && fresh.has(part)));
  return [...new Set(keysOf(apart.join("&")))].sort();
};

class Trail {
  constructor() {
    Object.assign(this, { address: null, changed: "", time: 0, gesture: 0 });
  }
  // What one click or key causes is one step, though it may take several requests.
  note(address, isRestored, gliding, gesture) {
    const before = this.address;
    this.address = address;
    if (before === address && !isRestored) return;
    const keys = before == null ? [] : changedKeys(before, address);
    const changed = !isRestored && keys.every(key => gliding.includes(key)) ? keys.join() : "";
    const now = performance.now();
    const goesOn = gesture === this.gesture || (changed && changed === this.changed && now - this.time < PAUSE);
    Object.assign(this, { changed, time: now, gesture });
    this.write(address, isRestored || before == null || goesOn);
  }
}

class LocationTrail extends Trail {
  constructor(show) {
    super();
    this.first = location.hash.slice(1);
    this.place = history.state?.place ?? 0;
    if (!history.state) sessionStorage.removeItem("complearn-last"); // the first address of this tab
    this.listener = event => {
      this.place = event.state?.place ?? this.place + 1; // an address that was typed comes after the last one
      show(location.hash.slice(1));
    };
    window.addEventListener("popstate", this.listener);
  }
  get last() {
    return Math.max(this.place, +(sessionStorage.getItem("complearn-last") ?? 0));
  }
  write(address, replaces) {
    if (!replaces) {
      this.place += 1;
      sessionStorage.setItem("complearn-last", this.place);
    }
    history[replaces ? "replaceState" : "pushState"]({ place: this.place }, "", `#${address}`);
  }
  step(by) {
    history.go(by);
  }
  close() {
    window.removeEventListener("popstate", this.listener);
    delete document.documentElement.dataset.complearnTaken;
  }
}

class WidgetTrail extends Trail {
  constructor(show, model) {
    super();
    Object.assign(this, { show, model, first: "" });
    this.address = this.views[this.place] ?? null;
  }
  get views() {
    return this.model.get("_trail")?.views ?? [];
  }
  get place() {
    return this.model.get("_trail")?.place ?? 0;
  }
  get last() {
    return Math.max(0, this.views.length - 1);
  }
  write(address, replaces) {
    const { views, place } = this;
    if (views[place] === address) return; // another view of the same widget has written it
    const before = views.slice(0, replaces ? place : place + 1).slice(-100);
    this.save([...before, address, ...(replaces ? views.slice(place + 1) : [])], before.length);
  }
  save(views, place) {
    this.model.set("_trail", { views, place });
    this.model.save_changes();
  }
  step(by) {
    const { views } = this;
    const place = this.place + by;
    if (!(place in views)) return;
    this.save(views, place);
    this.show(views[place]);
  }
  close() {}
}

// A served page belongs to the first app on it.
const openTrail = (show, model) => {
  const { dataset } = document.documentElement;
  if (!("complearnServed" in dataset) || "complearnTaken" in dataset) return new WidgetTrail(show, model);
  dataset.complearnTaken = "";
  return new LocationTrail(show);
};

const TEXT_FIELDS = "textarea, select, [contenteditable], input:not([type=checkbox], [type=range], [type=radio], [type=button])";

// The buttons of every app: the view before, the view after, and the view as a line of Python.
class Views {
  constructor(app, model) {
    Object.assign(this, { app, gesture: 0 });
    const send = app.send.bind(app);
    app.send = (request, ...rest) => send({ ...request, gesture: this.gesture }, ...rest);
    app.stepView = by => this.step(by);
    this.trail = openTrail(address => app.send({ action: "connect", view: address }), model);
    const step = by => () => this.step(by);
    // An app with changes of its own to take back has the keys first: see onKey.
    const [undo, redo] = app.changeKeys ?? ["", ""];
    const before = `the view before (Ctrl and Z${undo})`;
    const after = `the view after (Ctrl, Shift and Z${redo})`;
    this.before = button("↶", step(-1), { "aria-label": "the view before", title: before });
    this.after = button("↷", step(1), { "aria-label": "the view after", title: after });
    const copy = button("Copy as Python", () => app.send({ action: "copy_code" }), { title: "lines that open what you see" });
    this.bar = h("span", { class: "cl-row cl-views", hidden: true }, h("span", { class: "cl-group" }, this.before, this.after), copy);
    this.fault = h("p", { class: "cl-small cl-fault", role: "alert" });
    this.said = h("span", { role: "status", class: "cl-small cl-grow" });
    this.lines = h("pre", { class: "cl-code", tabindex: "0", "aria-label": "in Python" });
    const close = button("Put away", () => this.closeCode());
    this.code = h("div", { class: "cl-copied", hidden: true }, this.lines, h("div", { class: "cl-row" }, this.said, close));
    const top = app.node.querySelector(".cl-top");
    top.append(this.bar);
    top.after(this.fault, this.code);
    this.copy = copy;
    this.mark();
  }
  get connection() {
    const { first } = this.trail;
    return first ? { action: "connect", view: first } : { action: "connect" };
  }
  // Whether a message was for this, and not for the app.
  receive(content) {
    if (content.type === "address") {
      const { text, restored, fault, gliding, gesture } = content;
      const seen = this.bar.hidden ? "You see the ordinary view." : "You still see the view before.";
      // an app without an address has only opened its first model
      if (fault || this.trail.address != null) this.fault.textContent = fault ? `This address cannot be shown: ${fault}. ${seen}` : "";
      this.bar.hidden = false;
      if (text != null) this.trail.note(text, restored, gliding, gesture ?? this.gesture);
      this.mark();
    } else if (content.type === "python") this.showCode(content.text);
    else {
      if (!this.isDrawn) this.fault.textContent = content.type === "busy" ? content.text : ""; // no app shows it yet
      this.isDrawn ||= content.type !== "busy";
      return false;
    }
    return true;
  }
  mark() {
    const { place, last } = this.trail;
    // not disabled: the button keeps the keyboard when it comes to an end
    this.before.setAttribute("aria-disabled", String(place <= 0));
    this.after.setAttribute("aria-disabled", String(place >= last));
  }
  step(by) {
    const { place, last } = this.trail;
    if (place + by < 0 || place + by > last) return;
    this.trail.step(by);
    this.mark();
  }
  showCode(text) {
    this.lines.textContent = text;
    this.code.hidden = false;
    copyText(text, this.said, "the lines above");
  }
  closeCode() {
    this.code.hidden = true;
    this.copy.focus();
  }
  // Ctrl and Z takes back the last thing that was done in an app that keeps what is done, or else the last change of the
  // view; in a text field it is the text's own.
  onKey(event) {
    const { target, key } = event;
    if (!(event.ctrlKey || event.metaKey) || event.altKey || !["z", "y"].includes(key.toLowerCase())) return;
    const isMine = this.app.node.contains(target) || (this.trail instanceof LocationTrail && target === document.body);
    if (!isMine || target.matches(TEXT_FIELDS)) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    const by = key.toLowerCase() === "y" || event.shiftKey ? 1 : -1;
    if (!this.app.stepChange?.(by)) this.step(by);
  }
}

// Whether a key is an app's: the keyboard is in it, or nowhere on a page that shows this app alone. Voila's pages have
// JupyterLab's shell too, so a served page says itself what it is.
export const hasKeyboard = (node, target) => {
  const inLab = document.querySelector(".jp-LabShell") && !("complearnServed" in document.documentElement.dataset);
  const alone = document.querySelectorAll(".cl").length === 1 && !inLab;
  return node.contains(target) || (target === document.body && alone);
};

// Connect an app to the kernel's messages and to events of the window; returns the function that disconnects it.
// Events are taken before anyone else sees them: JupyterLab has uses of its own for Enter, arrows and letters.
export const connect = (app, model, listeners) => {
  const views = new Views(app, model);
  const receive = (content, buffers) => views.receive(content) || app.receive(content, buffers ?? []);
  const mark = ["pointerdown", "keydown", "input", "change"].map(name => [name, () => (views.gesture += 1)]);
  const putAway = event => {
    if (event.key !== "Escape" || !shownMeaning || !app.node.contains(shownMeaning.node)) return;
    hideMeaning();
    event.preventDefault(); // a search field would empty itself
    event.stopImmediatePropagation();
  };
  const tapElsewhere = ({ target }) => {
    const { node, tip } = shownMeaning ?? {};
    if (node && !node.contains(target) && !tip.contains(target)) hideMeaning();
  };
  const all = [
    ...mark,
    ["keydown", putAway],
    ["pointerdown", tapElsewhere],
    ["keydown", event => views.onKey(event)],
    ["scroll", placeMeaning],
    ...Object.entries(listeners),
  ];
  model.on("msg:custom", receive);
  for (const [name, listener] of all) window.addEventListener(name, listener, true);
  app.send(views.connection);
  return () => {
    model.off("msg:custom", receive);
    for (const [name, listener] of all) window.removeEventListener(name, listener, true);
    hideMeaning();
    views.trail.close();
  };
};
