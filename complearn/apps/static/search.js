// Image search: a picture, a text and a slider between them, the results, and what drove a hit.
// The kernel's side is complearn.apps.search.controller; nothing here asks a network.
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
  scrolling,
  some,
  statusLine,
  toggle,
  withMeaning,
} from "./shared.js";

const MAX_BYTES = 64 * 2 ** 20; // of an uploaded file, as in complearn.data.readers.uploads
const PART_BYTES = 4 * 2 ** 20; // servers close a connection on messages of more than ten megabytes
const TITLE = 60; // characters of a query or a caption in a title; its tooltip has the whole
const MOST = 96; // thumbnails in one request
const MOST_THINGS = 12; // buttons of boxes under the query's picture
const QUEUED = 48; // of those that are requested ahead of their use: few, so that a page that is looked at does not wait long behind it

const shorten = text => {
  const letters = [...text];
  return letters.length > TITLE ? `${letters.slice(0, TITLE).join("").trimEnd()}…` : text;
};

const sentence = text => `${text[0].toUpperCase()}${text.slice(1)}.`;

const decimals = value => value.toFixed(3).replace(/^-(?=[0.]+$)/, ""); // no minus before a zero

// --- thumbnails

// A small picture as an address that holds it. Chromium decodes 24 of these in less than half the time that it takes for
// addresses of blobs, which another process has to look up one by one.
const dataURL = view => {
  const content = bytes(view);
  let text = "";
  for (let start = 0; start < content.length; start += 8192) text += String.fromCharCode(...content.subarray(start, start + 8192));
  return `data:image/${content[0] === 0xff ? "jpeg" : "png"};base64,${btoa(text)}`;
};

// They arrive as files, which become pictures when they are shown. Those of the page that is looked at come with the query, and
// those that the slider may need next follow it unasked. What is missing after that is requested in small portions, one at a
// time, those nearest to the slider's place first.
class Thumbnails {
  constructor(app) {
    Object.assign(this, { app, loaded: new Map(), queue: [], requested: new Set(), waiting: false });
  }
  forget() {
    this.loaded.clear();
    this.requested.clear();
    this.queue = [];
    this.waiting = false;
  }
  receive(content, buffers) {
    const files = bytes(buffers[0]);
    let start = 0;
    const { boxes, facts } = content;
    content.items.forEach((item, n) => {
      this.requested.delete(item);
      const file = files.slice(start, start + content.sizes[n]);
      start += content.sizes[n];
      const told = { name: content.names[n], caption: content.captions[n], boxes: boxes?.[n] ?? [], facts: facts?.[n] ?? "" };
      if (!this.loaded.has(item)) this.loaded.set(item, { file, ...told });
    });
    this.waiting = this.requested.size > 0;
    this.app.grid.receive(content.items);
    this.request();
  }
  // The kernel sends these without being asked.
  expect(items) {
    for (const item of items) if (!this.loaded.has(item)) this.requested.add(item);
    this.waiting = this.requested.size > 0;
  }
  missing(items) {
    return [...new Set(items)].filter(item => !this.loaded.has(item) && !this.requested.has(item));
  }
  load(items) {
    const missing = this.missing(items);
    for (let n = 0; n < missing.length; n += MOST) this.send(missing.slice(n, n + MOST));
  }
  // Not before the page that has just come is on the screen: two frames.
  loadLater(items) {
    this.queue = this.missing(items);
    requestAnimationFrame(() => requestAnimationFrame(() => this.request()));
  }
  request() {
    this.queue = this.missing(this.queue);
    if (!this.waiting) this.send(this.queue.splice(0, QUEUED));
  }
  send(items) {
    if (!items.length) return;
    for (const item of items) this.requested.add(item);
    this.waiting = true;
    this.app.send({ action: "load_thumbnails", items });
  }
}

// --- the ranking that the slider moves

// What the times at the top are.
const TIMES =
  "How long the last query took: to turn it into vectors, and to compare it with all pictures. A move is the time from a " +
  "move of the slider until the pictures are on the screen.";

// What alpha is, by how the scores of the two sides are mixed.
const MEANING = {
  equal: "In the middle, picture and text count equally: the scores of each are divided by how much they vary over the gallery.",
  raw: "α is the text's share of the query. Where one side's scores vary more, that side decides more.",
};

// Why there is nothing to mix, by whether the query has a picture and words.
const NOT_MIXED = {
  none: "Choose a picture and type words first: alpha mixes picture and words.",
  text: "Choose a picture first: alpha mixes picture and words.",
  picture: "Type words first: alpha mixes picture and words.",
};

// The slider has to follow the hand, so a move costs no message. The kernel sends, for every picture that can be among the
// results at some alpha, its cosine with the query's picture and with its text, and for every position of the slider the
// text's share in the mixed query (alpha, but for the spreads of the two sides' scores) and the query's length, or the reason
// why there is none. Left to do here is the linear mix (1 - share) image + share text and the selection of the k largest; of
// equals the earlier picture comes first.
class Mixture {
  constructor(content, buffers) {
    Object.assign(this, content);
    this.items = numbers(Int32Array, buffers[1]);
    this.image = numbers(Float32Array, buffers[2]);
    this.text = numbers(Float32Array, buffers[3]);
    this.scores = new Float64Array(this.items.length);
    this.positions = new Map(content.positions.map(position => [position.alpha, position]));
  }
  position(alpha) {
    return this.positions.get(alpha) ?? this.positions.get(Math.round(100 * alpha) / 100);
  }
  hits(alpha, k) {
    const { scores, image, text } = this;
    const { share, length } = this.position(alpha);
    const best = [];
    for (let i = 0; i < scores.length; i++) {
      const score = (1 - share) * image[i] + share * text[i];
      scores[i] = score;
      if (best.length === k && score <= scores[best[k - 1]]) continue;
      let place = best.length;
      while (place > 0 && scores[best[place - 1]] < score) place--;
      best.splice(place, 0, i);
      if (best.length > k) best.pop();
    }
    return best.map(i => ({ item: this.items[i], score: scores[i] / length, image: image[i], text: text[i] }));
  }
}

// --- boxes

// The boxes of the things in a picture, in shares of its sides, as a layer that lies over it. In a square frame the picture
// itself leaves a margin at two sides.
const drawBoxes = (boxes, { width = 1, height = 1, withLabels = false } = {}) => {
  const longer = Math.max(width, height);
  const [across, down] = [width / longer, height / longer];
  const share = value => `${(100 * value).toFixed(2)}%`;
  const draw = ([label, left, top, right, bottom]) => {
    const [x, y] = [(1 - across) / 2 + left * across, (1 - down) / 2 + top * down];
    const size = `width:${share((right - left) * across)};height:${share((bottom - top) * down)}`;
    return h("span", { style: `left:${share(x)};top:${share(y)};${size}` }, withLabels && label ? h("b", {}, label) : null);
  };
  return h("span", { class: "cl-boxes", "aria-hidden": "true" }, boxes.map(draw));
};

// --- the grid of results

const MOST_TILES = 600; // that are kept for a later query

// Each picture's tile is made once and only moved: nothing is decoded or drawn twice. One picture is in the tab order;
// arrows go to the others, Enter searches with one, W explains it, K gives it a star.
class ResultGrid {
  constructor(app) {
    Object.assign(this, { app, tiles: new Map(), hits: [], active: 0 });
    this.box = h("div", { class: "cl-grid", role: "list", "aria-label": "pictures" });
  }
  forget() {
    this.tiles.clear();
    this.hits = [];
    this.active = 0;
    fill(this.box);
  }
  tile(item) {
    if (!this.tiles.has(item)) {
      this.tiles.set(item, this.makeTile(item));
      this.fillTile(this.tiles.get(item));
    }
    return this.tiles.get(item);
  }
  makeTile(item) {
    const { app } = this;
    const image = h("img", { alt: "", draggable: "false" });
    const whyTitle = "which words and regions make this picture a hit (W)";
    const starTitle = "give this picture a star, or take it away (K)";
    const tile = {
      item,
      image,
      open: button(image, () => app.searchPicture(item), { class: "cl-picture", tabindex: "-1" }),
      rank: h("b"),
      score: h("span", { class: "cl-muted" }),
      caption: h("div", { class: "cl-caption" }),
      why: button("Why?", () => app.explain(item), { tabindex: "-1", title: whyTitle }),
      keep: toggle("☆", false, () => app.keep(item), { class: "cl-star", tabindex: "-1", title: starTitle, "aria-label": "star" }),
    };
    const line = h("div", { class: "cl-tile-line" }, tile.rank, tile.score, h("span", { class: "cl-grow" }), tile.why);
    tile.node = h("div", { class: "cl-tile", role: "listitem", "data-item": item }, tile.open, tile.keep, line, tile.caption);
    withMeaning(line, () => this.describe(tile), tile.open);
    return tile;
  }
  fillTile(tile) {
    const thumbnail = this.app.thumbnails.loaded.get(tile.item);
    if (!thumbnail || tile.filled) return;
    const { file, name, caption, boxes } = thumbnail;
    tile.filled = true;
    tile.image.src = dataURL(file);
    tile.image.alt = tile.caption.textContent = caption || name;
    tile.caption.title = tile.image.title = caption ? `${caption}\n${name}` : name;
    tile.image.decode().then(
      () => {
        const { naturalWidth, naturalHeight } = tile.image;
        tile.image.classList.toggle("cl-coarse", naturalWidth <= 64);
        if (boxes.length) tile.open.append(drawBoxes(boxes, { width: naturalWidth, height: naturalHeight }));
      },
      () => {},
    );
  }
  // What the numbers of a tile mean, and what is known of its picture.
  describe({ item, hit }) {
    const { name, caption, boxes, facts } = this.app.thumbnails.loaded.get(item) ?? {};
    const lines = [];
    if (hit?.score !== undefined) {
      const { picture, query_text: text, scored, own } = this.app.mixture;
      const rivals = own == null ? scored : scored - 1;
      const first = hit.isOwn ? "The query's own picture takes no rank." : `Hit ${hit.rank} of ${count(rivals)} pictures.`;
      const alone = [picture && `with the picture alone ${decimals(hit.image)}`, text && `with the text alone ${decimals(hit.text)}`];
      const parts = picture && text ? ` (${alone.join(", ")})` : "";
      lines.push(`${first} Similarity ${decimals(hit.score)}${parts}: the cosine of picture and query, at most 1.`);
    }
    const labels = [...new Set((boxes ?? []).map(([label]) => label).filter(Boolean))];
    lines.push(caption, name, facts, labels.length && `In boxes: ${labels.join(", ")}`);
    return lines.filter(Boolean).join("\n");
  }
  receive(items) {
    for (const item of items) if (this.tiles.has(item)) this.fillTile(this.tiles.get(item));
    this.markReady();
  }
  markReady() {
    this.box.dataset.ready = String(this.hits.every(({ item }) => this.app.thumbnails.loaded.has(item)));
  }
  show(hits) {
    this.hits = hits;
    if (this.tiles.size > MOST_TILES) this.drop(new Set(hits.map(({ item }) => item)));
    const nodes = hits.map(hit => this.updateTile(this.tile(hit.item), hit));
    const present = this.box.children;
    const focused = this.box.contains(document.activeElement) && document.activeElement;
    if (nodes.length !== present.length || nodes.some((node, n) => present[n] !== node)) this.box.replaceChildren(...nodes);
    // a tile that is moved loses the keyboard, whose keys are named below the pictures
    if (focused && focused !== document.activeElement && focused.isConnected) {
      this.active = nodes.findIndex(node => node.contains(focused));
      focused.focus({ preventScroll: true });
    }
    this.active = Math.min(this.active, Math.max(0, hits.length - 1));
    this.markActive();
    this.markReady();
    this.app.thumbnails.load(hits.map(({ item }) => item));
  }
  drop(needed) {
    for (const item of this.tiles.keys()) if (!needed.has(item)) this.tiles.delete(item);
  }
  updateTile(tile, hit) {
    const ranked = hit.score !== undefined;
    const kept = this.app.selected.has(hit.item);
    tile.hit = hit;
    tile.rank.textContent = hit.isOwn ? "query" : ranked ? String(hit.rank) : "";
    tile.score.textContent = ranked ? decimals(hit.score) : "";
    tile.why.hidden = !ranked;
    tile.node.classList.toggle("cl-is-query", !!hit.isOwn);
    const name = tile.image.alt || `picture ${hit.item}`;
    const first = hit.isOwn ? "the query's picture, " : ranked ? `rank ${hit.rank}: ` : "";
    tile.open.setAttribute("aria-label", `${first}${name}: search with it`);
    if (tile.kept !== kept) {
      tile.kept = kept;
      tile.keep.textContent = kept ? "★" : "☆";
      tile.keep.setAttribute("aria-pressed", String(kept));
    }
    return tile.node;
  }
  markActive() {
    this.hits.forEach(({ item }, n) => this.tile(item).open.setAttribute("tabindex", n === this.active ? "0" : "-1"));
  }
  markExplained(item) {
    for (const tile of this.tiles.values()) tile.node.classList.toggle("cl-is-explained", tile.item === item);
  }
  onKey(event) {
    const place = this.hits.findIndex(({ item }) => this.tile(item).open === event.target);
    if (place < 0) return false;
    const columns = Math.max(1, getComputedStyle(this.box).gridTemplateColumns.split(" ").length);
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns, Home: -Infinity, End: Infinity };
    const { item } = this.hits[place];
    const letter = event.ctrlKey || event.metaKey || event.altKey ? "" : event.key.toLowerCase();
    if (event.key in steps) {
      this.active = Math.max(0, Math.min(this.hits.length - 1, place + steps[event.key]));
      this.markActive();
      this.tile(this.hits[this.active].item).open.focus();
    } else if (event.key === "Enter" || event.key === " ") this.app.searchPicture(item);
    else if (letter === "w") {
      if (this.app.mixture) this.app.explain(item);
    } else if (letter === "k") this.app.keep(item);
    else return false;
    return true;
  }
}

// --- the query's picture

// Uploaded by button, dropped or pasted; a box drawn on it selects a part. Without a mouse the box is moved by arrows, sized
// by Shift and arrows, searched with by Enter, and removed by Escape. The box is in fractions of the picture's sides.
class PictureInput {
  constructor(app) {
    Object.assign(this, { app, box: null });
    const upload = event => {
      this.upload(event.target.files[0]);
      event.target.value = "";
    };
    const file = h("input", { type: "file", accept: "image/*", "aria-label": "upload a picture", onchange: upload });
    const keys = "arrows draw and move a box, Shift and arrows size it, Enter searches with the part, Escape takes the whole";
    this.image = h("img", { alt: "", draggable: "false" });
    this.frame = h("div", { class: "cl-box", hidden: true });
    const pointer = {
      onpointerdown: event => this.startBox(event),
      onpointermove: event => this.dragBox(event),
      onpointerup: () => this.endBox(),
    };
    this.stage = h(
      "div",
      { class: "cl-stage", tabindex: "0", role: "group", "aria-label": `query picture: ${keys}`, ...pointer },
      this.image,
      this.frame,
    );
    this.empty = h("p", { class: "cl-muted cl-empty" }, "No picture yet. Click one of the gallery, or upload one.");
    this.description = h("p", { class: "cl-small cl-muted cl-description" });
    this.things = h("div", { class: "cl-row cl-things", role: "group", "aria-label": "search with a thing in a box", hidden: true });
    this.searchBox = button("Search with the box", () => this.crop(this.box), { hidden: true });
    this.whole = button("Whole picture", () => this.crop(null), { hidden: true });
    this.remove = button("Remove", () => app.send({ action: "clear", what: "picture" }), { hidden: true });
    this.status = statusLine({ role: "alert" });
    const uploader = h("label", { class: "cl-upload" }, "Upload…", file);
    this.node = h(
      "section",
      {
        class: "cl-picture-input",
        "aria-label": "picture of the query",
        ondragover: event => event.preventDefault(),
        ondrop: event => {
          event.preventDefault();
          this.upload(event.dataTransfer.files[0]);
        },
      },
      h("h3", {}, "Picture"),
      this.empty,
      this.stage,
      this.things,
      this.description,
      h("div", { class: "cl-row cl-buttons" }, uploader, this.searchBox, this.whole, this.remove),
      this.status,
    );
    this.show(null);
  }
  show(picture, view) {
    if (picture && view) this.image.src = dataURL(view);
    this.image.alt = picture?.name ?? "";
    this.stage.hidden = this.remove.hidden = !picture;
    this.empty.hidden = !!picture;
    this.searchBox.hidden = true;
    this.whole.hidden = !picture?.box;
    this.setBox(picture?.box ?? null);
    this.showThings(picture?.boxes ?? []);
    const part = picture?.box ? "a part of " : "";
    const notes = picture?.notes.length ? ` (${picture.notes.join(", ")})` : "";
    this.description.textContent = picture ? `${part}${picture.name}${notes}. Draw a box on it to search with a part.` : "";
  }
  // The boxes of the data, drawn over the picture; each is a button that searches with it.
  showThings(boxes) {
    this.stage.querySelector(".cl-boxes")?.remove();
    if (boxes.length) this.stage.append(drawBoxes(boxes));
    const names = new Map();
    for (const [label] of boxes) names.set(label, (names.get(label) ?? 0) + 1);
    const seen = new Map();
    const search = ([label, ...box]) => {
      seen.set(label, (seen.get(label) ?? 0) + 1);
      const name = `${label || "box"}${names.get(label) > 1 ? ` ${seen.get(label)}` : ""}`;
      return button(name, () => this.crop(box), { title: `search with the box of ${name}` });
    };
    this.things.hidden = !boxes.length;
    fill(this.things, h("span", { class: "cl-small" }, "Search with:"), boxes.slice(0, MOST_THINGS).map(search));
  }
  setBox(box) {
    this.box = box;
    this.frame.hidden = !box;
    if (!box) return;
    const [left, top, right, bottom] = box.map(share => 100 * share);
    const style = { left: `${left}%`, top: `${top}%`, width: `${right - left}%`, height: `${bottom - top}%` };
    Object.assign(this.frame.style, style);
  }
  pointOf(event) {
    const { left, top, width, height } = this.image.getBoundingClientRect();
    const share = (offset, size) => Math.max(0, Math.min(1, offset / size));
    return [share(event.clientX - left, width), share(event.clientY - top, height)];
  }
  startBox(event) {
    event.preventDefault();
    this.stage.focus();
    this.stage.setPointerCapture(event.pointerId);
    this.corner = this.pointOf(event);
  }
  dragBox(event) {
    if (!this.corner) return;
    const [x, y] = this.pointOf(event);
    const [a, b] = this.corner;
    this.setBox([Math.min(a, x), Math.min(b, y), Math.max(a, x), Math.max(b, y)]);
  }
  endBox() {
    if (!this.corner) return;
    this.corner = null;
    const [left, top, right, bottom] = this.box ?? [0, 0, 0, 0];
    if (right - left > 0.02 && bottom - top > 0.02) this.crop(this.box);
    else this.setBox(this.app.mixture?.picture?.box ?? null); // a click, not a box
  }
  crop(box) {
    this.app.send({ action: "crop", box }, "searching", this.status);
  }
  onKey(event) {
    const directions = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if (event.key in directions) this.moveBox(...directions[event.key], event.shiftKey);
    else if (event.key === "Enter" && this.box) this.crop(this.box);
    else if (event.key === "Escape" && this.app.mixture?.picture?.box) this.crop(null);
    else if (event.key === "Escape") {
      this.setBox(null);
      this.searchBox.hidden = true;
    } else return false;
    return true;
  }
  moveBox(x, y, resize) {
    const step = 0.05;
    const clamp = (value, least, most) => Math.max(least, Math.min(most, value));
    const [left, top, right, bottom] = this.box ?? [0.25, 0.25, 0.75, 0.75];
    if (!this.box) this.setBox([left, top, right, bottom]);
    else if (resize) {
      this.setBox([left, top, clamp(right + step * x, left + step, 1), clamp(bottom + step * y, top + step, 1)]);
    } else {
      const [dx, dy] = [clamp(step * x, -left, 1 - right), clamp(step * y, -top, 1 - bottom)];
      this.setBox([left + dx, top + dy, right + dx, bottom + dy]);
    }
    this.searchBox.hidden = false;
  }
  async upload(file) {
    if (!file) return;
    this.app.place = this.status;
    const megabytes = size => Math.round(size / 2 ** 20);
    if (file.size > MAX_BYTES) {
      const size = `${megabytes(file.size)} MB, more than ${megabytes(MAX_BYTES)}`;
      this.app.reportError(`${file.name} has ${size}; choose a smaller one.`);
      return;
    }
    this.app.report(`reading ${file.name}`, true);
    const content = await file.arrayBuffer();
    const parts = Math.max(1, Math.ceil(content.byteLength / PART_BYTES));
    for (let part = 0; part < parts; part++) {
      const request = { action: "upload", name: file.name, part, parts };
      this.app.model.send(request, undefined, [content.slice(part * PART_BYTES, (part + 1) * PART_BYTES)]);
    }
  }
}

// --- the explanation of a hit

// The picture with the heat map of one word over it. A word's bar shows its share of the cosine: the picture counts for
// (1 - share) / |Q|, the text for share / |Q|.
class Explanation {
  constructor(app) {
    this.app = app;
    const label = "why this picture is among the results";
    this.node = h("section", { class: "cl-explanation", hidden: true, tabindex: "-1", "aria-label": label });
    this.rows = scrolling(h("div", { class: "cl-shares", role: "group", "aria-label": "shares of the cosine" }));
  }
  async show(content, buffers) {
    const { words, shares, caption, name } = content;
    const picture = new Image();
    picture.src = dataURL(buffers[0]);
    await picture.decode().catch(() => {});
    const heats = content.grids.map((_, n) => bytes(buffers[n + 1]));
    const canvas = h("div", { class: "cl-heat" });
    const choose = k => {
      const drawn = this.draw(picture, heats[k], content.grids[k], content.fit, `${words[k]} on ${caption || name}`);
      const boxes = content.boxes.length > 0 && drawBoxes(content.boxes, { withLabels: true });
      fill(canvas, h("div", { class: "cl-heat-picture" }, drawn, boxes));
      if (heats[k].every(value => !value))
        canvas.append(h("p", { class: "cl-small cl-muted" }, `No single region speaks for “${words[k]}”.`));
      rows.forEach((row, n) => row.setAttribute("aria-pressed", String(n === k)));
      canvas.dataset.word = words[k];
    };
    // From the largest share against to the largest share for; zero is in between where there are both.
    const [against, most] = [Math.max(0, ...shares.map(share => -share)), Math.max(0, ...shares)];
    const scale = 100 / Math.max(1e-9, against + most);
    const rows = words.map((word, k) => {
      const width = scale * Math.abs(shares[k]);
      const start = scale * (shares[k] < 0 ? against + shares[k] : against);
      const bar = h("i", { class: shares[k] < 0 ? "cl-against" : "", style: `left:${start.toFixed(1)}%;width:${width.toFixed(1)}%` });
      const zero = against > 0 && h("b", { style: `left:${(scale * against).toFixed(1)}%` });
      const line = h("span", { class: "cl-track" }, bar, zero);
      const name = [word, content.unknown[k] && h("span", { class: "cl-unknown cl-small cl-muted" }, "not known to the model")];
      const parts = [h("span", { class: "cl-name" }, name), line, h("span", { class: "cl-number" }, decimals(shares[k]))];
      const row = h("button", { type: "button", class: "cl-share", "aria-pressed": "false", onclick: () => choose(k) }, parts);
      const verb = shares[k] < 0 ? "takes" : "adds";
      const place = shares[k] < 0 ? "from" : "to";
      const known = content.unknown[k] ? ", which the model does not know," : "";
      const says = `“${word}”${known} ${verb} ${decimals(Math.abs(shares[k]))} ${place} the similarity ${decimals(content.score)}.`;
      return withMeaning(row, () => says);
    });
    const close = () => {
      this.hide();
      this.app.send({ action: "close_explanation" });
      this.app.grid.tiles.get(content.item)?.open.focus();
    };
    const small = text => h("p", { class: "cl-small cl-muted" }, text);
    const title = h("h3", { class: "cl-grow", title: caption ? `${caption}\n${name}` : name });
    title.textContent = `Why ${caption ? `“${shorten(caption)}”` : shorten(name)}`;
    fill(this.rows, rows);
    fill(
      this.node,
      h("div", { class: "cl-row" }, title, button("Close", close)),
      h(
        "div",
        { class: "cl-columns" },
        canvas,
        h("div", {}, small(content.lead), this.rows, small(`How it was found. ${content.methods.map(sentence).join(" ")}`)),
      ),
    );
    this.node.hidden = false;
    this.node.dataset.item = content.item;
    this.app.grid.markExplained(content.item);
    choose(0);
    this.node.scrollIntoView({ block: "nearest" });
    this.node.focus({ preventScroll: true });
  }
  hide() {
    this.node.hidden = true;
    this.app.grid.markExplained(null);
  }
  // The model saw the square in the middle (fit "crop") or the whole picture; the grid lies over what it saw.
  draw(picture, heat, [rows, columns], fit, label) {
    const side = this.app.node.clientWidth >= 1400 ? 340 : 288;
    const scale = side / Math.max(picture.naturalWidth || 1, picture.naturalHeight || 1);
    const width = Math.round((picture.naturalWidth || 1) * scale);
    const height = Math.round((picture.naturalHeight || 1) * scale);
    const style = `width:${width}px;height:${height}px`;
    const canvas = h("canvas", { width: 2 * width, height: 2 * height, style, role: "img", "aria-label": label });
    const pen = canvas.getContext("2d");
    pen.imageSmoothingEnabled = picture.naturalWidth > 64;
    pen.drawImage(picture, 0, 0, 2 * width, 2 * height);
    const shade = h("canvas", { width: columns, height: rows });
    const shadePen = shade.getContext("2d");
    const pixels = new ImageData(columns, rows);
    heat.forEach((value, i) => pixels.data.set([12, 18, 48, 200 * (1 - value / 255)], 4 * i));
    shadePen.putImageData(pixels, 0, 0);
    const square = Math.min(width, height);
    const [seenWidth, seenHeight] = fit === "crop" ? [square, square] : [width, height];
    const [x, y] = [width - seenWidth, height - seenHeight];
    pen.imageSmoothingEnabled = true;
    pen.fillStyle = "rgba(12, 18, 48, 0.78)";
    pen.fillRect(0, 0, x, 2 * height);
    pen.fillRect(x + 2 * seenWidth, 0, x, 2 * height);
    pen.fillRect(x, 0, 2 * seenWidth, y);
    pen.fillRect(x, y + 2 * seenHeight, 2 * seenWidth, y);
    if (heat.some(value => value)) pen.drawImage(shade, x, y, 2 * seenWidth, 2 * seenHeight);
    return canvas;
  }
}

// --- the filter

// By words of captions and names, and by columns of the data: one of some values, from a number to a number, or by words.
class Filter {
  constructor(app) {
    Object.assign(this, { app, columns: new Map(), rows: new Map(), words: "", starred: false, isOn: false });
    const label = "words in captions";
    this.word = h("input", { type: "search", placeholder: label, "aria-label": label, autocomplete: "off" });
    this.word.addEventListener("input", () => this.sendSoon());
    const submit = event => {
      event.preventDefault();
      this.send();
    };
    this.list = h("div", { class: "cl-conditions" });
    const add = () => {
      this.addRow(this.choice.value);
      this.rows.get(this.choice.value)?.field.focus();
      this.choice.value = "";
    };
    this.choice = h("select", { "aria-label": "column to filter by", onchange: add });
    this.clear = button("Clear filter", () => this.app.send({ action: "filter_pictures" }, "reading the gallery"), { hidden: true });
    this.size = h("p", { class: "cl-small cl-muted", role: "status" });
    this.node = h(
      "section",
      { class: "cl-filter", "aria-label": "which pictures to search" },
      h("h3", { class: "cl-row" }, h("span", { class: "cl-grow" }, "Only pictures with"), this.clear),
      h("form", { class: "cl-row", onsubmit: submit }, this.word),
      this.list,
      this.choice,
      this.size,
    );
  }
  get conditions() {
    const wanted = [...this.rows].map(([name, { read }]) => [name, read()]);
    return wanted.filter(([, value]) => value !== "");
  }
  send(starred = this.starred) {
    clearTimeout(this.timer);
    const where = this.conditions.map(([name, value]) => `${name}=${value}`);
    this.app.send({ action: "filter_pictures", words: this.word.value, where, starred }, "choosing pictures");
  }
  sendSoon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.send(), 300);
  }
  // One row for a column: its name, a field, and a button that takes it away.
  addRow(name) {
    const column = this.columns.get(name);
    if (!column || this.rows.has(name)) return;
    const row = { values: () => this.values(column), range: () => this.range(column), words: () => this.text(column) }[column.kind]();
    const remove = () => {
      this.rows.delete(name);
      row.node.remove();
      this.offer();
      this.send();
      this.choice.focus();
    };
    const away = button("✕", remove, { "aria-label": `do not filter by ${name}`, title: `do not filter by ${name}` });
    row.node = h("div", { class: "cl-condition" }, h("span", { class: "cl-name", title: name }, name), row.fields, away);
    this.rows.set(name, row);
    this.list.append(row.node);
    this.offer();
  }
  values({ name, values }) {
    const options = values.map(([value, number]) => h("option", { value }, `${value} (${count(number)})`));
    const any = h("option", { value: "" }, "any");
    const field = h("select", { "aria-label": name, onchange: () => this.send() }, any, options);
    const show = value => {
      field.value = value;
    };
    return { field, fields: [field], read: () => field.value, show };
  }
  range({ name, low, high }) {
    const make = (end, placeholder) =>
      h("input", { type: "number", step: "any", placeholder, "aria-label": `${name} ${end}`, oninput: () => this.sendSoon() });
    const [from, to] = [make("from", low), make("to", high)];
    const read = () => (from.value || to.value ? `${from.value}..${to.value}` : "");
    const show = value => {
      [from.value, to.value] = value ? value.split("..") : ["", ""];
    };
    return { field: from, fields: [from, "to", to], read, show };
  }
  text({ name }) {
    const field = h("input", { type: "search", "aria-label": name, oninput: () => this.sendSoon() });
    const show = value => {
      field.value = value;
    };
    return { field, fields: [field], read: () => field.value.trim(), show };
  }
  offer() {
    const names = [...this.columns.keys()].filter(name => !this.rows.has(name));
    const first = h("option", { value: "" }, this.rows.size ? "and a column …" : "a column …");
    fill(
      this.choice,
      first,
      names.map(name => h("option", { value: name }, name)),
    );
    this.choice.hidden = !names.length;
  }
  receive({ words, conditions, starred, passing, total, columns }) {
    if (columns) {
      this.columns = new Map(columns.map(column => [column.name, column]));
      this.rows.clear();
      fill(this.list);
      this.offer();
    }
    Object.assign(this, { words, starred, passing, total });
    this.isOn = starred || words !== "" || conditions.length > 0;
    if (document.activeElement !== this.word) this.word.value = words;
    const wanted = new Map(conditions);
    for (const name of wanted.keys()) this.addRow(name);
    const isCleared = !this.isOn;
    for (const [name, row] of this.rows) {
      if (row.node.contains(document.activeElement)) continue;
      if (isCleared) {
        this.rows.delete(name);
        row.node.remove();
      } else row.show(wanted.get(name) ?? "");
    }
    if (isCleared) this.offer();
    this.clear.hidden = !this.isOn;
    this.size.textContent = this.isOn ? `${count(passing)} of ${some(total, "picture")}` : "";
  }
  // How the pictures that pass are called in a title.
  get name() {
    const others = this.words !== "" || this.conditions.length > 0;
    return `${this.starred ? "starred " : ""}pictures${others ? " that pass the filter" : ""}`;
  }
}

// --- the app

class Search {
  constructor(model, node) {
    Object.assign(this, { model, selected: new Set(), mixture: null, moves: [], hasBoxes: true });
    this.thumbnails = new Thumbnails(this);
    this.grid = new ResultGrid(this);
    this.picture = new PictureInput(this);
    this.explanation = new Explanation(this);
    this.filter = new Filter(this);
    this.place = this.status = statusLine({ role: "alert" });
    const body = h("div", { class: "cl-body" }, this.makeQuery(), this.makeResults());
    this.remark = h("p", { class: "cl-remark cl-model-remark", role: "status" });
    this.node = h("div", { class: "cl cl-search" }, this.makeTop(), this.remark, body);
    fill(node, this.node);
    this.observer = new ResizeObserver(() => {
      clearTimeout(this.resized);
      this.resized = setTimeout(() => this.fitWindow(), 200);
    });
    this.observer.observe(this.grid.box);
    this.setSlider(model.get("_alpha") ?? 0.5);
  }
  makeTop() {
    this.source = h("select", { "aria-label": "model", onchange: () => this.openModel() });
    this.summary = h("span", { class: "cl-small cl-muted cl-grow" });
    this.timing = h("span", {});
    this.times = h("span", { class: "cl-small cl-muted cl-timing", hidden: true }, explained(this.timing, TIMES));
    const refresh = () => this.send({ action: "refresh" }, "reading the gallery");
    const reload = button("Refresh", refresh, { title: "see whether the gallery has changed" });
    return h("div", { class: "cl-row cl-top" }, h("h2", {}, "Search"), this.source, this.summary, this.times, reload);
  }
  makeQuery() {
    const placeholder = "words to look for";
    this.word = h("input", { type: "search", placeholder, "aria-label": "text of the query", autocomplete: "off" });
    this.word.addEventListener("search", () => {
      if (!this.word.value && this.mixture?.query_text) this.send({ action: "clear", what: "text" });
    });
    const submit = event => {
      event.preventDefault();
      this.searchText();
    };
    const search = h("button", { type: "submit", class: "cl-primary" }, "Search");
    const form = h("form", { class: "cl-row", onsubmit: submit }, this.word, search);
    this.note = h("p", { class: "cl-small cl-note" });
    const text = h("section", { "aria-label": "text of the query" }, h("h3", {}, "Text"), form, this.note);
    const label = "alpha: from the picture to the text";
    const move = () => this.moveSlider(Math.round(100 * this.slider.value) / 100);
    this.slider = h("input", { type: "range", min: "0", max: "1", step: "0.01", "aria-label": label, oninput: move });
    const place = () => {
      const { share } = this.mixture?.position(this.alpha) ?? {};
      const weights = share == null ? "" : ` In the mixed query the text has ${Math.round(100 * share)} % of the weight.`;
      return `α is the slider's place: 0 is the picture alone, 1 the text alone.${weights}`;
    };
    this.value = h("output", { class: "cl-number" });
    for (const node of [this.slider, this.value]) withMeaning(node, place);
    const ends = ["picture", "both", "text"].map(end => h("span", {}, end));
    this.meaning = h("p", { class: "cl-small cl-mix" });
    const mix = h(
      "section",
      { "aria-label": "mix of picture and text" },
      h("h3", { class: "cl-row" }, h("span", { class: "cl-grow" }, "Mix"), this.value),
      this.slider,
      h("div", { class: "cl-ends", "aria-hidden": "true" }, ends),
      this.meaning,
    );
    this.history = h("section", { class: "cl-history", "aria-label": "previous queries", hidden: true });
    const id = `cl-rest-${Math.random().toString(36).slice(2, 8)}`;
    this.rest = h("div", { class: "cl-rest", id }, this.filter.node, this.history);
    const unfold = () => this.unfold.setAttribute("aria-expanded", String(this.rest.classList.toggle("cl-open")));
    this.unfold = button("Filter", unfold, { class: "cl-unfold", "aria-expanded": "false", "aria-controls": id });
    return h("div", { class: "cl-query" }, this.picture.node, text, mix, this.unfold, this.rest);
  }
  makeResults() {
    this.title = h("h3", { class: "cl-grow", role: "status" });
    this.pages = h("span", { class: "cl-row" });
    this.all = button("All pictures", () => this.send({ action: "clear", what: "all" }), { hidden: true });
    const csv = "save the hits, or the pictures of this list, with their captions, columns and stars";
    this.table = button("Save as CSV", () => this.send({ action: "export_table" }), { title: csv });
    const starred = "show the pictures with a star alone; a star stays whatever is searched";
    this.stars = toggle("☆", false, () => this.filter.send(!this.filter.starred), { title: starred });
    const boxes = "draw the boxes that the data has";
    this.boxes = toggle("Boxes", true, () => this.showBoxes(!this.hasBoxes), { title: boxes, hidden: true });
    const more = () => this.send({ action: "show_more", page_size: 2 * this.mixture.page_size });
    this.more = button("Show more", more, { hidden: true });
    const keys = "Click a picture to search with it. Keys on a picture: arrows move, Enter searches, W explains, K gives a star.";
    this.flat = h("p", { class: "cl-remark cl-small", role: "status" });
    this.former = h("p", { class: "cl-remark cl-small cl-former", role: "status", hidden: true });
    return h(
      "div",
      { class: "cl-results" },
      this.status,
      h("div", { class: "cl-row cl-head" }, this.title, this.pages, this.boxes, this.stars, this.all, this.table),
      this.former,
      this.flat,
      this.explanation.node,
      this.grid.box,
      h("div", { class: "cl-row" }, this.more, h("p", { class: "cl-small cl-muted" }, keys)),
    );
  }

  // What comes of an action is said where the action was: at the query's picture, or above the results.
  send(request, busy = "", place = this.status) {
    if (busy) {
      this.place = place;
      this.report(busy, true);
    }
    this.model.send(request);
  }
  report(text, busy = false) {
    for (const line of [this.status, this.picture.status]) line.report(line === this.place ? text : "", busy);
  }
  reportError(text) {
    this.report(text);
    this.place.scrollIntoView({ block: "nearest" });
  }
  // The list names the new model at once; until its pictures are there, those of the former one are dimmed, with its name.
  openModel() {
    const names = [this.opened, +this.source.value].map(source => this.source.options[source]?.textContent);
    this.former.textContent = `These pictures are still those of ${names[0]}, until ${names[1]} is open.`;
    this.markFormer(this.opened >= 0);
    this.send({ action: "open_model", source: +this.source.value }, "opening the model");
  }
  markFormer(isFormer) {
    this.former.hidden = !isFormer;
    this.grid.box.classList.toggle("cl-dimmed", isFormer);
  }
  // The slider has nothing to do without a picture or without words, unless it stands at the end of the side that is missing.
  markSlider() {
    const { picture, query_text: text } = this.mixture ?? {};
    const missing = picture ? !text && "picture" : text ? "text" : "none";
    this.slider.disabled = !!missing && !this.mixture?.position(this.alpha).reason;
    this.meaning.textContent = missing ? NOT_MIXED[missing] : MEANING[this.spread];
  }
  searchText() {
    const text = this.word.value.trim();
    this.send(text ? { action: "search_text", text } : { action: "clear", what: "text" }, "searching");
  }
  searchPicture(item) {
    this.send({ action: "search_picture", item }, "searching");
  }
  explain(item) {
    this.send({ action: "explain", item, alpha: this.alpha }, "computing the explanation");
  }
  keep(item) {
    this.send({ action: "keep", item, on: !this.selected.has(item) });
  }
  showStars() {
    const { size } = this.selected;
    const { starred } = this.filter;
    this.stars.textContent = `${size ? "★" : "☆"} Starred (${count(size)})`;
    this.stars.setAttribute("aria-pressed", String(starred));
    this.stars.disabled = !size && !starred;
  }
  // What a narrow window has behind a button, so that the results follow the query.
  nameRest() {
    const { isOn, size } = this.filter;
    const queries = this.history.hidden ? "" : " and previous queries";
    this.unfold.textContent = `Filter${isOn ? ` (${size.textContent})` : ""}${queries}`;
  }
  showBoxes(on) {
    this.hasBoxes = on;
    this.boxes.setAttribute("aria-pressed", String(on));
    this.node.classList.toggle("cl-without-boxes", !on);
  }
  // A wide window shows three rows of pictures, where nobody asked for a number of them.
  fitWindow() {
    if (!this.fits || !this.grid.box.isConnected) return;
    const columns = getComputedStyle(this.grid.box).gridTemplateColumns.split(" ").length;
    if (3 * columns <= this.fits) return;
    this.fits = 3 * columns;
    this.send({ action: "fit_window", count: this.fits });
  }

  // A move of the slider: mix, select, rearrange; the time is taken from the event to the frame after the one that shows
  // the pictures. The kernel receives the slider's place a little later, so that app.hits is what the screen shows.
  moveSlider(alpha) {
    const start = performance.now();
    this.setSlider(alpha);
    this.rank();
    const computed = performance.now() - start;
    requestAnimationFrame(() =>
      requestAnimationFrame(() => {
        const ready = this.grid.box.dataset.ready === "true";
        this.moves = [...this.moves.slice(-199), { alpha, computed, shown: performance.now() - start, ready }];
        this.showTiming();
      }),
    );
    this.timer ??= setTimeout(() => {
      this.timer = null;
      this.saveAlpha();
    }, 120);
  }
  setSlider(alpha) {
    this.alpha = alpha;
    this.slider.value = alpha;
    this.value.textContent = `α = ${alpha.toFixed(2)}`;
    const text = `${Math.round(100 * (1 - alpha))} % picture, ${Math.round(100 * alpha)} % text`;
    this.slider.setAttribute("aria-valuetext", text);
  }
  saveAlpha() {
    this.model.set("_alpha", this.alpha);
    this.model.save_changes();
  }
  rank() {
    const { mixture, alpha } = this;
    if (!mixture) return;
    const { reason } = mixture.position(alpha);
    this.status.report(reason);
    this.more.hidden = !!reason || mixture.page_size >= Math.min(240, mixture.scored);
    this.grid.show(reason ? [] : this.ranked(alpha));
    const among = this.filter.isOn ? ` among ${count(mixture.scored)} ${this.filter.name}` : "";
    const title = `Nearest to ${shorten(mixture.label)}${among}`;
    const none = `No ${this.filter.name}`;
    this.showTitle(reason ? "No results" : mixture.scored ? title : none, reason ? "" : mixture.label);
    this.grid.box.dataset.alpha = alpha.toFixed(2);
  }
  // The hits with their ranks. The query's own picture has none.
  ranked(alpha) {
    const hits = this.mixture.hits(alpha, this.mixture.page_size);
    let rank = 0;
    for (const hit of hits) {
      if (hit.item === this.mixture.own) hit.isOwn = true;
      else hit.rank = ++rank;
    }
    return hits;
  }
  showTitle(text, whole = "") {
    this.title.textContent = text;
    this.title.title = whole;
  }
  showTiming() {
    const { milliseconds, scored } = this.mixture ?? {};
    const last = this.moves.at(-1);
    const parts = [];
    if (milliseconds) {
      const { encode, score } = milliseconds;
      parts.push(`encoded in ${encode.toFixed(0)} ms, scored ${count(scored)} pictures in ${score.toFixed(1)} ms`);
    }
    if (last) parts.push(`last move ${last.shown.toFixed(0)} ms`);
    this.timing.textContent = parts.join(" · ");
    this.times.hidden = !parts.length;
  }

  // What each message of the kernel changes.
  receive(content, buffers) {
    const receivers = {
      state: () => this.receiveState(content),
      page: () => this.receivePage(content),
      thumbnails: () => this.thumbnails.receive(content, buffers),
      query: () => this.receiveQuery(content, buffers),
      history: () => this.receiveHistory(content, buffers),
      filters: () => {
        this.filter.receive(content);
        this.showStars();
        this.nameRest();
      },
      selection: () => {
        this.selected = new Set(content.items);
        this.grid.show(this.grid.hits);
        this.showStars();
        this.report("");
      },
      explanation: () => {
        this.report("");
        this.explanation.show(content, buffers);
      },
      alpha: () => {
        this.mixture?.positions.set(content.alpha, content);
        if (content.alpha !== this.alpha) this.moveSlider(content.alpha);
      },
      table: () => download(content.name, content.csv),
      busy: () => this.report(content.text, true),
      notice: () => this.report(content.text, true),
      error: () => {
        if (content.action === "open_model") {
          this.markFormer(false); // the former one stays open
          this.source.value = this.opened ?? -1;
        }
        this.thumbnails.requested.clear();
        this.thumbnails.waiting = false;
        this.thumbnails.request();
        this.reportError(content.text);
      },
    };
    receivers[content.type]?.();
  }
  receiveState(content) {
    const { sources, source, pictures } = content;
    const option = ({ name, can_search, state }, i) => {
      const label = can_search ? name : `${name} (cannot search)`;
      return h("option", { value: i, disabled: !can_search, title: state }, label);
    };
    fill(this.source, sources.map(option));
    this.source.value = source;
    this.source.hidden = sources.length < 2;
    this.selected = new Set(content.selected);
    this.spread = content.spread;
    this.remark.textContent = content.remark ?? "";
    this.boxes.hidden = !content.has_boxes;
    if (content.fits_window) this.fits ||= 24;
    const first = sources.findIndex(({ can_search }) => can_search);
    for (const control of this.node.querySelectorAll("button, input")) control.disabled = first < 0;
    this.markSlider();
    this.showStars();
    if (first < 0) this.report(content.empty || "There is no model to search with.");
    else if (source < 0) this.send({ action: "open_model", source: first }, `opening ${sources[first].name}`);
    else {
      if (this.opened !== source || this.pictures !== pictures) this.forget();
      this.opened = source;
      this.pictures = pictures;
      this.markFormer(false);
      this.summary.textContent = this.describeGallery(content);
      this.report("");
    }
  }
  describeGallery({ sources, source, pictures, skipped, skipped_count }) {
    const name = sources.length < 2 ? `${sources[source].name}: ` : ""; // of several the list shows it
    const size = `${name}${some(pictures, "picture")}`;
    if (!skipped_count) return size;
    return `${size}; ${count(skipped_count)} could not be read (${skipped.join(", ")}${skipped_count > 3 ? ", ..." : ""})`;
  }
  forget() {
    this.thumbnails.forget();
    this.grid.forget();
    this.mixture = null;
    this.picture.show(null);
    this.explanation.hide();
  }
  receivePage({ items, start, total }) {
    this.explanation.hide();
    this.mixture = null;
    this.thumbnails.queue = [];
    this.picture.show(null);
    this.word.value = this.note.textContent = "";
    this.report("");
    this.all.hidden = this.more.hidden = true;
    this.flat.textContent = "";
    const { isOn, name } = this.filter;
    const what = isOn ? `${name[0].toUpperCase()}${name.slice(1)}` : "Pictures";
    const none = `No ${name}`;
    const range = `${count(start + 1)} to ${count(start + items.length)} of ${count(total)}`;
    this.showTitle(total ? `${what} ${range}` : none);
    const turn = (label, to, disabled) => button(label, () => this.send({ action: "show_page", start: to }), { disabled });
    const next = start + items.length;
    fill(this.pages, turn("Previous", Math.max(0, start - items.length), start === 0), turn("Next", next, next >= total));
    this.grid.show(items.map(item => ({ item })));
    this.markSlider();
    this.showTiming();
  }
  receiveQuery(content, buffers) {
    this.mixture = content.positions ? new Mixture(content, buffers) : null;
    this.thumbnails.expect(content.ahead ?? []);
    this.picture.show(content.picture, buffers[0]);
    this.word.value = content.query_text;
    this.note.textContent = content.note ? `Note: ${content.note}.` : "";
    this.report("");
    this.explanation.hide();
    this.markSlider();
    if (!this.mixture) return;
    fill(this.pages);
    this.all.hidden = false;
    this.flat.textContent = content.remark;
    if (content.move_slider && content.alpha !== this.alpha) {
      this.setSlider(content.alpha);
      this.saveAlpha();
    }
    this.markSlider();
    this.grid.active = 0;
    this.rank();
    this.showTiming();
    this.loadAhead();
  }
  loadAhead() {
    const { mixture } = this;
    const ends = [0, 1, 0.25, 0.75, 0.5].filter(alpha => !mixture.position(alpha).reason);
    const first = ends.flatMap(alpha => mixture.hits(alpha, mixture.page_size).map(({ item }) => item));
    this.thumbnails.loadLater([...first, ...mixture.items]); // in place of an earlier query's
  }
  receiveHistory({ queries }, buffers) {
    const entry = ({ label, alpha, number, current }, n) => {
      const hasPicture = bytes(buffers[n]).length > 0;
      const image = hasPicture ? h("img", { alt: "", src: dataURL(buffers[n]) }) : h("span", { class: "cl-blank" }, "Aa");
      const recall = () => this.send({ action: "recall", number }, "searching");
      const attributes = { type: "button", "aria-pressed": String(current), title: `${label}, α ${alpha.toFixed(2)}` };
      return h("button", { ...attributes, onclick: recall }, image, h("span", { class: "cl-name" }, shorten(label)));
    };
    this.history.hidden = !queries.length;
    this.nameRest();
    fill(this.history, h("h3", {}, "Previous queries"), queries.map(entry).reverse());
  }

  onKey(event) {
    const { target, key } = event;
    if (!this.node.contains(target)) return;
    if (this.filter.node.contains(target)) {
      event.stopPropagation(); // arrows and letters are the fields' own
      return;
    }
    if (target === this.slider || (target === this.word && key !== "Enter")) {
      event.stopPropagation(); // arrows, Home and End are the slider's own, letters the text's
      return;
    }
    if (target === this.word) this.searchText();
    else if (target === this.picture.stage) {
      if (!this.picture.onKey(event)) return;
    } else if (!this.grid.onKey(event)) {
      if (["Enter", " "].includes(key)) event.stopPropagation();
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }
  onPaste(event) {
    const [file] = event.clipboardData?.files ?? [];
    if (!file || !this.node.contains(event.target)) return;
    event.preventDefault();
    this.picture.upload(file);
  }
}

function render({ model, el }) {
  const app = new Search(model, el);
  app.node.search = app; // for tests and measurements
  const disconnect = connect(app, model, { keydown: event => app.onKey(event), paste: event => app.onPaste(event) });
  return () => {
    disconnect();
    app.observer.disconnect();
    app.forget();
  };
}
export default { render };
