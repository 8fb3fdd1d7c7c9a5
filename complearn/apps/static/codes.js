// The codebook explorer: a grid of codes, tabs for one code, one image and one query, and one model or two side by side.
// The kernel's side is complearn.apps.codes.controller; nothing here asks a network.
import { button, bytes, connect, count, explained, fill, h, numbers, percent, some, statusLine, toggle, track } from "./shared.js";

// --- pictures

// Thumbnails, which arrive as raw pixels. Those of one message share one canvas (a canvas for each would stall a scroll);
// the last few thousand are held.
class Thumbnails {
  constructor(size, limit = 4000) {
    Object.assign(this, { size, limit, places: new Map() });
  }
  has(items) {
    return items.every(item => item < 0 || this.places.has(item));
  }
  add(items, view) {
    const { size } = this;
    const pixels = bytes(view);
    const fresh = items.map((item, n) => [item, n]).filter(([item]) => !this.places.has(item));
    if (!fresh.length) return;
    const columns = Math.min(fresh.length, 32);
    const sheet = h("canvas", { width: columns * size, height: Math.ceil(fresh.length / columns) * size });
    const image = new ImageData(sheet.width, sheet.height);
    fresh.forEach(([item, n], k) => {
      const x = (k % columns) * size;
      const y = Math.floor(k / columns) * size;
      let from = 3 * n * size * size;
      for (let row = 0; row < size; row++) {
        let to = 4 * ((y + row) * sheet.width + x);
        for (let column = 0; column < size; column++, from += 3, to += 4) {
          image.data[to] = pixels[from];
          image.data[to + 1] = pixels[from + 1];
          image.data[to + 2] = pixels[from + 2];
          image.data[to + 3] = 255;
        }
      }
      this.places.set(item, { sheet, x, y });
    });
    sheet.getContext("2d").putImageData(image, 0, 0);
    for (const oldest of this.places.keys()) {
      if (this.places.size <= this.limit) break;
      this.places.delete(oldest);
    }
  }
  // Draw a thumbnail with its heat map, cold patches darkened, and with the patch that fired outlined.
  draw(pen, item, x, side, { heat, grid, position } = {}) {
    const place = this.places.get(item);
    if (!place) return;
    pen.imageSmoothingEnabled = side < 4 * this.size;
    pen.drawImage(place.sheet, place.x, place.y, this.size, this.size, x, 0, side, side);
    if (!grid) return;
    const [rows, columns] = grid;
    const width = side / columns;
    const height = side / rows;
    for (let i = 0; heat && i < rows * columns; i++) {
      const [column, row] = [i % columns, Math.floor(i / columns)];
      const [left, right] = [Math.round(column * width), Math.round((column + 1) * width)]; // whole pixels: no seams
      const [top, bottom] = [Math.round(row * height), Math.round((row + 1) * height)];
      pen.fillStyle = `rgba(12, 18, 48, ${0.75 * (1 - heat[i] / 255)})`;
      pen.fillRect(x + left, top, right - left, bottom - top);
    }
    if (position >= 0) outline(pen, x + (position % columns) * width, Math.floor(position / columns) * height, width, height);
  }
}

// Black and white, which is visible on any ground.
const outline = (pen, x, y, width, height) => {
  for (const [colour, line] of [
    ["#000000", 4],
    ["#ffffff", 2],
  ]) {
    pen.strokeStyle = colour;
    pen.lineWidth = line;
    pen.strokeRect(x + 2, y + 2, Math.max(width - 4, 2), Math.max(height - 4, 2));
  }
};

// Draw on a canvas, as sharp as the screen.
const redraw = (canvas, width, height, draw) => {
  const scale = window.devicePixelRatio || 1;
  const pen = canvas.getContext("2d");
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  pen.scale(scale, scale);
  draw(pen);
  return canvas;
};
const drawing = (width, height, draw, attributes = {}) => redraw(h("canvas", { role: "img", ...attributes }), width, height, draw);

// --- the grid of codes

const CARD = { width: 132, height: 98, gap: 8, strip: 44 };

// Only the cards in sight exist. While the grid scrolls, cards that leave come back with other codes, and what is not known
// yet is requested a page at a time and never two pages at once, so that a fast scroll requests no pages that nobody sees.
class CardGrid {
  constructor(panel) {
    Object.assign(this, { panel, order: new Int32Array(0), active: 0, waiting: false });
    this.contents = new Map(); // code -> what its card shows
    this.nodes = new Map(); // place in the order -> card
    this.spare = [];
    this.inner = h("div", { class: "cl-inner", role: "presentation" });
    const listeners = {
      onscroll: () => this.schedule(),
      onfocus: () => this.markActive(),
      onpointerenter: () => this.schedule(),
    };
    this.box = h("div", { class: "cl-grid", tabindex: "0", role: "listbox", "aria-label": "Codes", ...listeners }, this.inner);
    this.observer = new ResizeObserver(() => this.schedule()); // a field, or it may be collected as garbage
    this.observer.observe(this.box);
  }
  setOrder(order) {
    this.order = order;
    this.active = 0;
    this.box.scrollTop = 0;
    this.spare.push(...this.nodes.values());
    this.nodes.clear();
    fill(this.inner);
    this.schedule();
  }
  forget() {
    this.contents.clear();
    this.waiting = false;
    this.schedule();
  }
  checkSize() {
    if (this.paintedSize !== `${this.box.clientWidth}x${this.box.clientHeight}`) this.schedule();
  }
  schedule() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      this.paint();
    });
  }
  get columns() {
    return Math.max(1, Math.floor((this.box.clientWidth - CARD.gap) / (CARD.width + CARD.gap)));
  }
  paint() {
    const { columns, order, box } = this;
    const step = CARD.height + CARD.gap;
    this.paintedSize = `${box.clientWidth}x${box.clientHeight}`;
    if (!box.clientWidth || !box.clientHeight) return; // out of sight: what is there stays
    this.inner.style.height = `${Math.ceil(order.length / columns) * step + CARD.gap}px`;
    const first = Math.max(0, Math.floor(box.scrollTop / step) - 1) * columns;
    const last = Math.min(order.length, (Math.ceil((box.scrollTop + box.clientHeight) / step) + 1) * columns);
    const width = (box.clientWidth - CARD.gap) / columns - CARD.gap;
    for (const [i, node] of this.nodes)
      if (i < first || i >= last) {
        this.spare.push(node);
        this.nodes.delete(i);
      }
    for (let i = first; i < last; i++) this.placeCard(i, columns, width, step);
    for (const node of this.spare) node.remove();
    this.request(first, last);
  }
  placeCard(i, columns, width, step) {
    const code = this.order[i];
    const content = this.contentOf(code);
    const key = `${code}|${!!content}|${Math.round(width)}`;
    const node = this.nodes.get(i) ?? this.spare.pop() ?? this.makeCard();
    if (node.parentNode !== this.inner) this.inner.append(node);
    if (node.dataset.key !== key) this.fillCard(node, code, content, width);
    node.dataset.key = key;
    node.place = i;
    node.id = `${this.panel.id}-${i}`;
    this.nodes.set(i, node);
    node.setAttribute("aria-posinset", i + 1);
    node.setAttribute("aria-setsize", this.order.length);
    const x = CARD.gap + (i % columns) * (width + CARD.gap);
    const y = CARD.gap + Math.floor(i / columns) * step;
    node.style.transform = `translate(${x}px, ${y}px)`;
    node.style.width = `${width}px`;
    node.setAttribute("aria-selected", String(code === this.panel.code));
    node.classList.toggle("cl-active", i === this.active);
    node.classList.toggle("cl-kept", this.panel.selected.has(code));
  }
  makeCard() {
    const open = () => {
      this.active = node.place;
      this.panel.openCode(node.code);
      this.markActive();
    };
    const node = h(
      "div",
      { role: "option", onclick: open, onpointerenter: () => this.panel.loadCode(node.code) },
      h("canvas", { "aria-hidden": "true" }),
      h("div", { class: "cl-blank" }),
      h("div", { class: "cl-line" }, h("b"), h("span", { class: "cl-muted" })),
      track(0),
      h("div", { class: "cl-words" }),
    );
    return node;
  }
  // A card: three best images, the code's number, how often it fires, its words.
  fillCard(node, code, content, width) {
    const { book, thumbnails } = this.panel;
    const [strip, blank, line, bar, words] = node.children;
    const [number, usage] = line.children;
    const share = book.fired[code] / book.images;
    const text = content ? content.words.join(", ") || (share ? "no words" : "never fires") : "";
    node.code = code;
    node.className = `cl-card${content ? "" : " cl-pending"}${share ? "" : " cl-dead"}`;
    node.title = `code ${code}, fires on ${percent(share)} of images${text ? `: ${text}` : ""}`;
    strip.hidden = !content;
    blank.hidden = !!content;
    number.textContent = code;
    usage.textContent = share ? percent(share) : "dead";
    bar.firstChild.style.width = `${(100 * Math.sqrt(share)).toFixed(1)}%`;
    words.textContent = text;
    if (!content) return;
    const side = Math.min(60, Math.max(20, (width - 20) / 3));
    redraw(strip, 3 * side + 4, CARD.strip, pen =>
      content.best.forEach((item, n) => {
        if (item < 0) return;
        pen.save();
        pen.beginPath();
        pen.rect(n * (side + 2), 0, side, CARD.strip);
        pen.clip();
        const margin = Math.max(0, (CARD.strip - side) / 2);
        thumbnails.draw(pen, item, n * (side + 2) - margin, Math.max(side, CARD.strip));
        pen.restore();
      }),
    );
  }
  contentOf(code) {
    const content = this.contents.get(code);
    return content && this.panel.thumbnails.has(content.best) ? content : null; // others may have displaced its pictures
  }
  request(first, last) {
    if (this.waiting) return;
    const codes = [];
    for (let i = first; i < Math.min(this.order.length, 2 * last - first) && codes.length < 120; i++)
      if (!this.contentOf(this.order[i])) codes.push(this.order[i]);
    if (!codes.length) return;
    this.waiting = true;
    this.panel.send({ action: "load_cards", codes });
  }
  receive(content, buffers) {
    this.panel.thumbnails.add(content.items, buffers[0]);
    content.codes.forEach((code, n) => this.contents.set(code, { best: content.best[n], words: content.words[n] }));
    this.waiting = false;
    this.schedule();
  }
  // Arrows move, page keys and Home and End leap, Enter opens, the space bar keeps.
  onKey(event) {
    const { columns } = this;
    const page = columns * Math.max(1, Math.floor(this.box.clientHeight / (CARD.height + CARD.gap)));
    const steps = {
      ArrowRight: 1,
      ArrowLeft: -1,
      ArrowDown: columns,
      ArrowUp: -columns,
      PageDown: page,
      PageUp: -page,
      Home: -Infinity,
      End: Infinity,
    };
    if (event.key in steps) this.move(this.active + steps[event.key]);
    else if (event.key === "Enter" && this.order.length) this.panel.openCode(this.order[this.active]);
    else if (event.key === " " && this.order.length) this.panel.keepCode(this.order[this.active]);
    else return false;
    return true;
  }
  move(to) {
    const { box } = this;
    this.active = Math.max(0, Math.min(this.order.length - 1, to));
    const step = CARD.height + CARD.gap;
    const top = Math.floor(this.active / this.columns) * step;
    const bottom = top + step + CARD.gap;
    if (top < box.scrollTop) box.scrollTop = top;
    if (bottom > box.scrollTop + box.clientHeight) box.scrollTop = bottom - box.clientHeight;
    this.paint();
    this.markActive();
    this.panel.loadCode(this.order[this.active]);
  }
  markActive() {
    this.box.setAttribute("aria-activedescendant", `${this.panel.id}-${this.active}`);
  }
}

// --- the map of codes

// Every code is a dot, larger where it carries more weight; the open code is ringed, the results of a word search have the
// second colour. The dots are drawn once; a click opens the nearest code.
class CodeMap {
  constructor(panel) {
    this.panel = panel;
    const title = "every dot is a code; click one to open it";
    this.box = h("div", { class: "cl-map", onclick: event => this.pick(event), title });
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.box);
  }
  checkTheme() {
    if (this.accent && this.accent !== getComputedStyle(this.box).getPropertyValue("--cl-accent").trim()) this.draw();
  }
  setPositions(positions, shares) {
    const axis = k => {
      const values = Float32Array.from(shares, (_, i) => positions[2 * i + k]);
      const low = values.reduce((a, b) => Math.min(a, b), Infinity);
      const high = values.reduce((a, b) => Math.max(a, b), -Infinity);
      return values.map(value => (value - low) / Math.max(high - low, 1e-9));
    };
    this.x = axis(0);
    this.y = axis(1).map(value => 1 - value);
    this.shares = shares;
    this.largest = shares.reduce((a, b) => Math.max(a, b), 1e-12);
    this.draw();
  }
  pixelOf(code) {
    return [12 + this.x[code] * (this.width - 24), 12 + this.y[code] * (this.height - 24)];
  }
  draw() {
    const { panel, box, shares } = this;
    if (!this.x || !box.clientWidth) return;
    this.width = box.clientWidth;
    this.height = box.clientHeight;
    const style = getComputedStyle(box);
    const colour = name => style.getPropertyValue(name).trim();
    this.accent = colour("--cl-accent");
    const results = new Set(panel.orderBy === "word" ? panel.grid.order : []);
    const scale = Math.min(1, 60 / Math.sqrt(shares.length));
    const dots = pen => {
      const group = (name, alpha, belongs, radius) => {
        pen.fillStyle = colour(name);
        pen.globalAlpha = alpha;
        for (let code = 0; code < shares.length; code++) {
          if (!belongs(code)) continue;
          pen.beginPath();
          pen.arc(...this.pixelOf(code), radius(code), 0, 7);
          pen.fill();
        }
      };
      const size = code => Math.max(1, scale * (2.5 + 6 * Math.sqrt(shares[code] / this.largest)));
      group(
        "--cl-muted",
        0.45,
        code => !shares[code],
        () => Math.max(0.7, 2 * scale),
      );
      group("--cl-accent", 0.6, code => shares[code] && !results.has(code), size);
      group(
        "--cl-warning",
        1,
        code => results.has(code),
        () => 4,
      );
    };
    this.ring = h("i", { class: "cl-ring" });
    fill(box, drawing(this.width, this.height, dots, { "aria-label": "map of the codes" }), this.ring);
    this.markOpen();
  }
  markOpen() {
    if (!this.ring || this.panel.code == null) return;
    const [x, y] = this.pixelOf(this.panel.code);
    this.ring.style.transform = `translate(${x - 9}px, ${y - 9}px)`;
  }
  pick(event) {
    const box = this.box.getBoundingClientRect();
    let nearest = -1;
    let least = 20 ** 2; // pixels
    for (let code = 0; code < this.x.length; code++) {
      const [x, y] = this.pixelOf(code);
      const distance = (x - event.clientX + box.left) ** 2 + (y - event.clientY + box.top) ** 2;
      if (distance < least) [nearest, least] = [code, distance];
    }
    if (nearest >= 0) this.panel.openCode(nearest);
  }
}

// --- the tabs

const block = (title, ...children) => h("div", { class: "cl-block" }, h("span", { class: "cl-label" }, title), ...children);
const note = text => h("p", { class: "cl-muted cl-empty" }, text);
const meter = (name, share, number, attributes = {}) => {
  const [first, ...further] = [number].flat();
  const parts = [h("span", { class: "cl-name" }, name), track(share), h("span", { class: "cl-number" }, first), ...further];
  return h("div", { class: `cl-meter${further.length ? " cl-two" : ""}`, ...attributes }, parts);
};
const codeName = (code, words) => {
  const named = words.length ? ` ${words.join(", ")}` : h("span", { class: "cl-muted" }, " no words");
  return h("span", {}, h("b", {}, String(code)), named);
};
const thumbnail = (panel, item, side, marks, title, onclick) => {
  const draw = pen => panel.thumbnails.draw(pen, item, 0, side, marks);
  const picture = drawing(side, side, draw, { "aria-hidden": "true" });
  return button(picture, onclick, { class: "cl-thumbnail", title, "aria-label": title });
};

// A code: how often it fires, the images on which it scores highest with their heat maps, its words, its place on the map.
function showCode(panel, content, buffers) {
  const { book } = panel;
  const { code, best, words } = content;
  const tab = panel.tabs.code;
  const share = book.fired[code] / book.images;
  const patches = book.grid[0] * book.grid[1];
  const heats = bytes(buffers[1]);
  panel.thumbnails.add(content.items, buffers[0]);
  const room = tab.clientWidth - 26;
  const wide = room > 560;
  const columns = wide ? (room > 1000 ? 6 : 4) : Math.max(3, Math.floor(room / 96));
  const side = Math.floor(Math.min(160, (wide ? ((room - 18) * 8) / 13 : Math.max(room, 300)) / columns - 7));
  const images = best.item.map((item, n) => {
    const caption = content.captions[n] ? `: ${content.captions[n]}` : "";
    const scores = `score ${best.score[n].toFixed(3)}, weight ${best.weight[n].toFixed(3)}`;
    const heat = heats.subarray(n * patches, (n + 1) * patches);
    const marks = { grid: book.grid, position: best.position[n], heat };
    const open = () => panel.explorer.openImage(panel, item);
    return thumbnail(panel, item, side, marks, `image ${item}${caption} · ${scores}`, open);
  });
  const fires = explained(`fires on ${percent(share)} of ${count(book.images)} images`, MEANINGS.fires);
  const rank = explained(`rank ${count(book.rank[code])} of ${count(book.codes)} by usage`, MEANINGS.rank);
  const weight = explained(`weight ${content.weight.toFixed(3)} where it fires`, MEANINGS.weight);
  const never = `never fires on these ${count(book.images)} images: a dead code, shown with the images that come nearest`;
  const usage = share ? [fires, " · ", rank, " · ", weight] : never;
  const most = Math.max(...words.share);
  const meters = words.word.map((word, n) => {
    const title = `in ${count(words.captions[n])} captions that fire this code`;
    const lift = h("span", { class: "cl-number" }, `× ${words.lift[n].toFixed(1)}`);
    return meter(word, words.share[n] / most, [percent(words.share[n]), lift], { title });
  });
  const title = content.set_apart === false ? explained("Words that fire it", MEANINGS.fallback) : "Words that set it apart";
  const wordsTitle = [title, ": ", explained("share", MEANINGS.share), ", × ", explained("lift", MEANINGS.lift)];
  const wordless = book.words ? "No caption fires this code." : "The images came without captions.";
  const kept = panel.selected.has(code);
  const keepTitle = "add this code to explorer.selection (space bar in the grid)";
  const editTitle = "list this code under Surgery, where a factor changes it in the query; nothing changes before";
  const matchTitle = "open, in the other model, the code whose weights over the same images correlate most with this one's";
  const two = panel.explorer.panels.length > 1;
  const { match } = content;
  const correlation = match && explained(`correlation ${match.correlation.toFixed(2)}`, MEANINGS.correlation);
  const matched = match && [`matches code ${match.code} of ${match.model}: `, correlation];
  fill(
    tab,
    h(
      "div",
      { class: "cl-row" },
      h("h3", { class: "cl-grow" }, `Code ${code}`),
      toggle(kept ? "Kept" : "Keep", kept, () => panel.keepCode(code), { title: keepTitle }),
      button("Edit in surgery", () => panel.editCode(code), { title: editTitle }),
      two && button("Open its match", () => panel.send({ action: "open_match" }), { title: matchTitle }),
    ),
    matched && h("p", { class: "cl-muted", role: "status" }, matched),
    h("p", { class: "cl-muted" }, usage),
    content.word_remark && h("p", { class: "cl-remark", role: "note" }, content.word_remark),
    h(
      "div",
      { class: "cl-halves cl-wide" },
      block("Best images (bright: hot patches, outlined: the patch that fired)", h("div", { class: "cl-thumbnails" }, images)),
      h("div", {}, block(wordsTitle, meters.length ? meters : note(wordless)), panel.mapBlock),
    ),
  );
  tab.dataset.drawn = code;
  if (panel.map.ring) panel.map.markOpen();
  else panel.map.draw();
}

// An image: its codes by weight. Pointing at a code outlines the patch that fired it.
function showImage(panel, content, buffers) {
  const { codes, item, words } = content;
  const side = 260;
  const tab = panel.tabs.image;
  const frame = h("div", { class: "cl-picture" });
  panel.thumbnails.add(content.items, buffers[0]);
  const show = n => {
    const marks = codes.code.length ? { grid: panel.book.grid, position: codes.position[n] } : {};
    const draw = pen => panel.thumbnails.draw(pen, item, 0, side, marks);
    fill(frame, drawing(side, side, draw, { "aria-label": content.caption || `image ${item}` }));
  };
  show(0);
  const rows = codes.code.map((code, n) => {
    const place = `patch row ${codes.row[n] + 1}, column ${codes.column[n] + 1}`;
    const weight = codes.weight[n];
    const row = meter(codeName(code, words[n]), weight / codes.weight[0], weight.toFixed(3));
    return button(row, () => panel.openCode(code), {
      class: "cl-entry",
      title: `${place}, score ${codes.score[n].toFixed(3)}`,
      onmouseenter: () => show(n),
      onfocus: () => show(n),
    });
  });
  const search = () => panel.explorer.search(panel, { item });
  fill(
    tab,
    h(
      "div",
      { class: "cl-row" },
      h("h3", { class: "cl-grow" }, `Image ${item}`),
      button("Search with it", search, { title: "use this image as the query under Surgery" }),
    ),
    h("p", { class: "cl-muted" }, content.caption || "no caption"),
    h(
      "div",
      { class: "cl-halves cl-picture-first" },
      block("Outlined: the patch that fired the highlighted code", frame),
      block(
        [`Made of ${count(content.support)} codes, by `, explained("weight", MEANINGS.weights)],
        h("div", { class: "cl-list cl-tall" }, rows),
      ),
    ),
  );
  tab.dataset.drawn = item;
}

// What the numbers mean.
const MEANINGS = {
  codes: "The codebook's vectors. Every image and every text is a weighted mean of some of them.",
  effective:
    "As many codes as would be in use if all were used equally: the exponential of the entropy of the codes' shares of all weight. Equal use of all codes gives their number, one code alone gives 1.",
  dead: "Codes that fire on none of these images.",
  images:
    "Of a run, the pictures that were held out of its training are shown, or those of its training where none were held out. Others are shown by complearn open codes --runs FOLDER --gallery photos/, or by pairs= in Python.",
  support: "Half of the images are made of this many codes or fewer.",
  fires: "A code fires on an image if it has a weight above 0 there.",
  rank: "Codes sorted by the number of images on which they fire, and of equals by their weight; rank 1 fires on the most images.",
  weight: "The mean of the code's weight over the images on which it fires. The weights of an image add up to 1.",
  weights: "How much of the image or the text each code is: the weights of one image, or of one text, add up to 1.",
  share: "The part of the code's weight that comes from this word, over the captions of these images.",
  lift: "The word's share here, divided by its share over all codes: × 1 is as everywhere, × 5 five times as much. Words are sorted by share and lift together; special and function words are left out where a code has others.",
  fallback:
    "No word of this code is said more often here than elsewhere, special and function words such as “[end]” and “a” aside: these are the words that fire it, the heaviest first. Of other codes, such words are left out.",
  correlation:
    "Of the two codes' weights over the same images: 1 fires on the same images with the same weights, 0 has nothing to do with it.",
  edit: "The factors change the codes' weights in the query alone, or in the query and in all images. Then everything is ranked again.",
  rise: "How many ranks an image has won (▲) or lost (▼) by the edits; – is no change.",
  card: "A card has three images, the code's number, the share of images on which it fires, and the words that set it apart. By usage, the largest share comes first.",
};

const NO_IMAGE = "Open an image: click one of a code's images.";
const NO_QUERY = "Search for a text above; the codes of its query can then be switched off or up.";
const FACTORS = [
  [0, "off"],
  [0.5, "½"],
  [1, "1"],
  [2, "2"],
  [4, "4"],
];
const factorButtons = (panel, code, factor) =>
  h(
    "span",
    { class: "cl-group", role: "group", "aria-label": `weight of code ${code}` },
    FACTORS.map(([value, label]) =>
      toggle(label, value === factor, () => panel.send({ action: "scale_code", code, factor: value }), {
        "data-factor": value,
        "aria-label": `${label}: code ${code} times ${value}`,
      }),
    ),
  );

const rankChange = rise => {
  if (!rise) return h("span", { class: "cl-change" }, "–");
  const [kind, arrow] = rise > 0 ? ["cl-up", "▲"] : ["cl-down", "▼"];
  return h("span", { class: `cl-change ${kind}` }, `${arrow} ${count(Math.abs(rise))}`);
};
function ranking(panel, content, name, title) {
  const hits = content[name];
  const after = name === "after";
  const rows = hits.item.map((item, n) => {
    const rise = hits.rise[n];
    const caption = content.captions[item] || `image ${item}`;
    const former = after && rise ? `, was ${count(hits.rank_before[n])}.` : "";
    const open = () => panel.explorer.openImage(panel, item);
    return h(
      "li",
      {},
      h("span", { class: "cl-rank" }, String(after ? hits.rank[n] : hits.rank_before[n])),
      thumbnail(panel, item, 40, {}, `image ${item}: ${caption}${former}`, open),
      h("span", { class: "cl-grow cl-caption", title: caption }, caption),
      after && rankChange(rise),
    );
  });
  return block(title, h("ol", { class: "cl-ranking" }, rows));
}

// Surgery: the query's codes, each with a factor from off to four times; the results before and after.
function showSurgery(panel, content, buffers) {
  const { codes, query } = content;
  const edits = codes.factor.filter(factor => factor !== 1).length;
  const most = Math.max(...codes.weight);
  panel.thumbnails.add(content.items, buffers[0]);
  const rows = codes.code.map((code, n) => {
    const weight = codes.weight[n];
    const absence = codes.absence[n];
    const row = meter(codeName(code, content.words[n]), weight / most, weight.toFixed(3));
    return h(
      "div",
      {
        class: ["cl-factor", !codes.factor[n] && "cl-off", absence && "cl-absent", code === content.asked && "cl-asked"]
          .filter(Boolean)
          .join(" "),
      },
      button(row, () => panel.openCode(code), { class: "cl-entry cl-grow", title: "open this code" }),
      factorButtons(panel, code, codes.factor[n]),
      absence && h("p", { class: "cl-absence cl-small cl-muted" }, absence),
    );
  });
  const all = !!panel.listsAllCodes;
  const isCut = content.heaviest < content.support;
  const listed = isCut && !all ? `, of which the ${content.heaviest} heaviest are listed` : "";
  const listOthers = () => {
    panel.listsAllCodes = !all;
    showSurgery(panel, content, buffers);
    panel.surgery.querySelector(".cl-all").focus();
  };
  const others = all ? `List the ${content.heaviest} heaviest` : `List all ${count(content.support)}`;
  const name = "text" in query ? `“${query.text}”` : `image ${query.item}`;
  const scopes = [
    ["query", "in the query"],
    ["both", "in query and images"],
  ].map(([scope, label]) => toggle(label, content.scope === scope, () => panel.send({ action: "set_scope", scope })));
  const after = `Results after ${edits} edit${edits > 1 ? "s" : ""}: `;
  const edited = edits ? [after, explained("▲ ranks won, ▼ lost", MEANINGS.rise)] : "Results after: no edits yet";
  fill(
    panel.surgery,
    content.note && h("p", { class: "cl-remark", role: "status" }, content.note),
    block(
      [`${name} is made of ${some(content.support, "code")}${listed}; their `, explained("weights", MEANINGS.weights), " before any edit"],
      h("div", { class: "cl-list" }, all ? rows : rows.slice(0, content.first)),
      isCut && button(others, listOthers, { class: "cl-all" }),
    ),
    h(
      "div",
      { class: "cl-row cl-scope" },
      h("span", { class: "cl-muted" }, explained("Edit", MEANINGS.edit)),
      h("span", { class: "cl-group" }, scopes),
      h("span", { class: "cl-grow" }),
      button("Reset", () => panel.send({ action: "reset_surgery" }), { disabled: !edits }),
    ),
    h("div", { class: "cl-halves cl-even" }, ranking(panel, content, "before", "Results before"), ranking(panel, content, "after", edited)),
  );
  panel.tabs.surgery.dataset.drawn = JSON.stringify(codes.factor.slice(0, content.first));
  panel.surgery.querySelector(".cl-asked")?.scrollIntoView({ block: "nearest" });
}

// --- a panel: one model, its grid and its tabs

class Panel {
  constructor(explorer, number) {
    Object.assign(this, { explorer, number, selected: new Set(), orderBy: "usage", code: null, book: null });
    this.id = `cl-${Math.random().toString(36).slice(2, 8)}`;
    this.thumbnails = new Thumbnails(64);
    this.grid = new CardGrid(this);
    this.map = new CodeMap(this);
    const open = more => this.send({ action: "open_model", source: +this.source.value, ...more });
    this.source = h("select", { "aria-label": "model", onchange: () => open() });
    const weights = "the weights at the end of a phase of training, or after a step";
    this.snapshot = h("select", { "aria-label": "snapshot", title: weights, onchange: () => open({ snapshot: this.snapshot.value }) });
    this.summary = h("span", { class: "cl-muted cl-small" });
    this.status = statusLine({ role: "status", "aria-live": "polite" });
    this.remark = h("p", { class: "cl-remark", role: "status" });
    this.methods = h("span", { class: "cl-group cl-methods" });
    const mapTitle = h("span", { class: "cl-label cl-grow" }, "Map of all codes");
    this.mapBlock = h("div", { class: "cl-block" }, h("div", { class: "cl-row" }, mapTitle, this.methods), this.map.box);
    this.makeTabs();
    this.forgetLoaded();
    const field = (label, control) => h("label", { class: "cl-field" }, h("span", { class: "cl-label" }, label), control);
    const head = [field("Model", this.source), field("Snapshot", this.snapshot), this.summary];
    const details = h("div", { class: "cl-details" }, this.tabButtons, ...Object.values(this.tabs));
    this.node = h(
      "section",
      { class: "cl-panel", "aria-label": `model ${number + 1}` },
      h("header", { class: "cl-row cl-head" }, head),
      this.status,
      this.remark,
      h("div", { class: "cl-body" }, this.grid.box, details),
    );
  }
  makeTabs() {
    this.field = h("input", {
      type: "search",
      class: "cl-grow",
      placeholder: "a query, such as a caption",
      "aria-label": "query",
    });
    const submit = event => {
      event.preventDefault();
      this.explorer.search(this, { text: this.field.value });
    };
    const find = h("button", { type: "submit", class: "cl-primary" }, "Search");
    const form = h("form", { class: "cl-row", onsubmit: submit }, this.field, find);
    this.surgery = h("div", {}, note(NO_QUERY));
    const tab = (...children) => h("div", { class: "cl-tab", role: "tabpanel" }, children);
    this.tabs = {
      code: tab(note("Open a code: click a card, or move with the arrow keys and press Enter.")),
      image: tab(note(NO_IMAGE)),
      surgery: tab(form, this.surgery),
    };
    const buttons = Object.keys(this.tabs).map(name => {
      const label = name[0].toUpperCase() + name.slice(1);
      return button(label, () => this.explorer.showTab(name), { role: "tab", "data-tab": name });
    });
    this.tabButtons = h("div", { class: "cl-tabs", role: "tablist" }, buttons);
  }
  // A view without an image or a query was gone back to.
  emptyTabs({ item, query }) {
    if (item == null) fill(this.tabs.image, note(NO_IMAGE));
    if (Object.keys(query ?? {}).length || !this.tabs.surgery.dataset.drawn) return;
    fill(this.surgery, note(NO_QUERY));
    this.field.value = this.tabs.surgery.dataset.drawn = "";
  }
  send(request) {
    this.explorer.send({ panel: this.number, ...request });
  }

  // Opening a code. The code under the pointer, or the one that the arrows have reached, is loaded before it is opened (one
  // at a time, the last 64 are held), so that a click is drawn without waiting for the kernel.
  openCode(code) {
    const loaded = this.loaded.get(code);
    this.code = code;
    this.explorer.showTab("code");
    this.send({ action: "open_code", code, loaded: !!loaded || this.loading === code });
    if (loaded) this.drawCode(...loaded);
    else {
      this.map.markOpen();
      this.grid.schedule();
    }
  }
  drawCode(content, buffers) {
    this.code = content.code;
    this.status.report("");
    showCode(this, content, buffers);
    this.drawn = [content, buffers];
    this.drawnWidth = this.tabs.code.clientWidth;
    this.grid.schedule();
    this.map.markOpen();
  }
  // The pictures of a code fit the width.
  checkWidth() {
    const width = this.tabs.code.clientWidth;
    if (!this.drawn || !width || Math.abs(width - this.drawnWidth) < 40) return;
    this.drawnWidth = width;
    showCode(this, ...this.drawn);
  }
  loadCode(code) {
    if (code == null || this.loaded.has(code) || this.loading === code) return;
    if (this.loading != null) {
      this.next = code;
      return;
    }
    this.loading = code;
    this.send({ action: "load_code", code });
  }
  receiveLoaded(content, buffers) {
    const { next } = this;
    this.loading = this.next = null;
    this.loaded.set(content.code, [content, buffers]);
    if (this.loaded.size > 64) this.loaded.delete(this.loaded.keys().next().value);
    this.tabs.code.dataset.loaded = [...this.loaded.keys()].join(" ");
    // It may have been opened while it was on its way.
    if (content.code === this.code && this.drawn?.[0].code !== content.code) this.drawCode(content, buffers);
    this.loadCode(next);
  }
  // The kernel's last word on which code is open; another view of the same widget may have drawn it.
  receiveOpened(code) {
    if (this.drawn?.[0].code === code) this.code = code;
    else if (this.loaded.has(code)) this.drawCode(...this.loaded.get(code));
    else this.send({ action: "open_code", code });
  }
  forgetLoaded() {
    this.loaded = new Map();
    this.loading = this.next = null;
    this.tabs.code.dataset.loaded = "";
  }
  keepCode(code) {
    this.send({ action: "keep_code", code, on: !this.selected.has(code) });
  }
  editCode(code) {
    this.explorer.showTab("surgery");
    this.send({ action: "edit_code", code });
  }

  // What each message of the kernel changes. An error stays on the screen until something works.
  receive(content, buffers) {
    const receivers = {
      codebook: () => this.receiveBook(content, buffers),
      order: () => {
        this.orderBy = content.by;
        this.grid.setOrder(numbers(Int32Array, buffers[0]));
        this.explorer.showOrder(content);
        if (content.tab) this.explorer.showTab(content.tab, false);
        this.map.draw();
      },
      cards: () => this.grid.receive(content, buffers),
      code: () => (content.open ? this.drawCode(content, buffers) : this.receiveLoaded(content, buffers)),
      opened: () => this.receiveOpened(content.code),
      image: () => showImage(this, content, buffers),
      surgery: () => {
        this.field.value = content.query.text ?? "";
        showSurgery(this, content, buffers);
      },
      selection: () => {
        this.selected = new Set(content.codes);
        for (const node of this.grid.nodes.values()) node.dataset.key = "";
        if (this.drawn) showCode(this, ...this.drawn);
        this.grid.schedule();
      },
      busy: () => this.status.report(content.text, true),
      error: () => {
        this.status.report(content.text);
        this.explorer.stopLooking();
        this.loading = this.next = null;
        this.grid.waiting = false;
        this.grid.schedule();
        this.explorer.showSource(this);
      },
    };
    if (["codebook", "order", "image", "surgery"].includes(content.type)) this.status.report("");
    receivers[content.type]?.();
  }
  receiveBook(content, buffers) {
    this.explorer.addWords(content.vocabulary);
    this.book = { ...content, fired: numbers(Int32Array, buffers[2]), rank: numbers(Int32Array, buffers[3]) };
    this.thumbnails = new Thumbnails(content.thumb);
    this.forgetLoaded();
    this.drawn = null;
    this.grid.forget();
    const { codes, effective, dead, images, support } = content;
    this.remark.textContent = content.remark ?? "";
    const parts = [
      [`${count(codes)} codes`, MEANINGS.codes],
      [`${count(Math.round(effective))} in effective use`, MEANINGS.effective],
      [`${count(dead)} dead`, MEANINGS.dead],
      [`median ${count(support)} codes`, MEANINGS.support],
      [`${count(images)} images`, MEANINGS.images],
    ].map(part => explained(...part));
    fill(this.summary, parts[0], ", ", parts[1], ", ", parts[2], " · ", parts[4], ", ", parts[3], " each");
    this.map.setPositions(numbers(Float32Array, buffers[0]), numbers(Float32Array, buffers[1]));
    const methods = ["pca", "umap"].map(method =>
      toggle(method.toUpperCase(), content.map === method, () => this.send({ action: "draw_map", method })),
    );
    fill(this.methods, methods);
  }
}

// --- the explorer: what panels share (the word, the order, the open tab), and one panel or two

class Explorer {
  constructor(model, node) {
    Object.assign(this, { model, panels: [], tab: "code", sources: [] });
    const id = `cl-vocabulary-${Math.random().toString(36).slice(2)}`; // two explorers on one page have a list each
    this.word = h("input", {
      type: "search",
      placeholder: "word, such as red",
      "aria-label": "search codes by word",
      list: id,
    });
    this.vocabulary = h("datalist", { id });
    this.orders = h("span", { class: "cl-group", role: "group", "aria-label": "order of the codes" });
    this.found = h("span", { class: "cl-muted cl-grow", role: "status" });
    this.compare = toggle("Compare two models", false, () => this.send({ action: "compare", on: this.panels.length < 2 }));
    const submit = event => {
      event.preventDefault();
      this.searchWord();
    };
    const search = h("button", { type: "submit" }, "Search");
    const form = h("form", { class: "cl-row", onsubmit: submit }, this.word, this.vocabulary, search);
    const order = h("span", { class: "cl-muted cl-order" }, explained("Order", MEANINGS.card));
    const top = [h("h2", {}, "Codebook"), form, order, this.orders, this.found, this.compare];
    this.columns = h("div", { class: "cl-panels" });
    this.node = h("div", { class: "cl cl-codes" }, h("div", { class: "cl-row cl-top" }, top), this.columns);
    fill(node, this.node);
    this.showOrder({ by: "usage" });
  }
  send(request) {
    this.model.send(request);
  }
  sendAll(request) {
    for (const panel of this.panels) panel.send(request);
  }
  searchWord() {
    const word = this.word.value.trim();
    // the answer takes a while where a model is just being opened
    const isOpen = this.panels.every(({ book }) => book);
    if (word) this.found.textContent = isOpen ? `looking for “${word}” …` : `the codes are loading; then “${word}” is looked for …`;
    this.sendAll(word ? { action: "sort_codes", by: "word", word } : { action: "sort_codes", by: "usage" });
  }
  stopLooking() {
    if (this.found.textContent.endsWith("…")) this.found.textContent = this.foundText ?? "";
  }
  addWords(words) {
    const former = [...this.vocabulary.children].map(option => option.value);
    fill(
      this.vocabulary,
      [...new Set([...words, ...former])].map(word => h("option", { value: word })),
    );
  }
  showOrder({ by, word, text }) {
    const sort = order => {
      this.word.value = "";
      this.sendAll({ action: "sort_codes", by: order });
    };
    fill(
      this.orders,
      ["usage", "index"].map(order => toggle(`by ${order}`, by === order, () => sort(order))),
    );
    if (by === "word") this.word.value = word;
    else if (this.orderedBy === "word") this.word.value = ""; // a view without it was gone back to
    this.orderedBy = by;
    this.found.textContent = this.foundText = text || "";
    for (const panel of this.panels) panel.grid.box.setAttribute("aria-label", text || "Codes");
  }
  showTab(tab, tell = true) {
    if (tell && tab !== this.tab) this.send({ action: "show_tab", tab });
    this.tab = tab;
    for (const panel of this.panels)
      for (const control of panel.tabButtons.children) {
        const open = control.dataset.tab === tab;
        control.setAttribute("aria-selected", String(open));
        panel.tabs[control.dataset.tab].hidden = !open;
      }
  }
  openImage(panel, item) {
    this.showTab("image");
    const same = this.panels.every(other => other.book?.images === panel.book.images);
    for (const target of same ? this.panels : [panel]) target.send({ action: "open_image", item });
  }
  search(panel, query) {
    this.showTab("surgery");
    for (const target of "text" in query ? this.panels : [panel]) target.send({ action: "search", ...query });
  }
  showSource(panel) {
    if (!panel.state) return;
    panel.source.value = panel.state.source;
    panel.snapshot.value = panel.state.snapshot;
  }
  onKey(event) {
    const panel = this.panels.find(({ grid, field }) => [grid.box, field].includes(event.target));
    if (panel?.grid.box === event.target) {
      if (!panel.grid.onKey(event)) return;
    } else if (event.key !== "Enter") return;
    else if (panel) this.search(panel, { text: panel.field.value });
    else if (event.target === this.word) this.searchWord();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
  receive(content, buffers) {
    if (content.type === "state") this.receiveState(content);
    else this.panels[content.panel ?? 0]?.receive(content, buffers);
  }
  // The first message says what there is; from then on each panel receives its own.
  receiveState(content) {
    this.sources = content.sources;
    while (this.panels.length > content.panels.length) this.panels.pop().node.remove();
    while (this.panels.length < content.panels.length) {
      const panel = new Panel(this, this.panels.length);
      this.panels.push(panel);
      this.columns.append(panel.node);
    }
    const options = content.sources.map(({ name, snapshots, state }, i) => [
      i,
      snapshots.length ? name : `${name} (${state.split(/[;:]/)[0]})`,
    ]);
    content.panels.forEach((state, n) => {
      const panel = this.panels[n];
      const snapshots = content.sources[state.source]?.snapshots ?? [];
      panel.state = state;
      panel.selected = new Set(state.selected);
      panel.emptyTabs(state);
      fill(
        panel.source,
        options.map(([value, label]) => h("option", { value }, label)),
      );
      fill(
        panel.snapshot,
        snapshots.map(name => h("option", { value: name }, name)),
      );
      this.showSource(panel);
    });
    const two = content.panels.length > 1;
    this.node.classList.toggle("cl-compared", two);
    this.compare.setAttribute("aria-pressed", String(two));
    this.showTab(content.tab, false);
    for (const panel of this.panels) if (panel.drawn) showCode(panel, ...panel.drawn); // one code more, or less, to match
    this.openFirst(content);
  }
  openFirst({ sources, panels, empty }) {
    const first = sources.findIndex(({ snapshots }) => snapshots.length);
    const controls = ".cl-top input, .cl-top button, .cl-tabs button, .cl-tab button, .cl-tab input";
    for (const control of this.node.querySelectorAll(controls)) {
      if (first < 0) Object.assign(control, { disabled: true, isClosed: true });
      else if (control.isClosed) Object.assign(control, { disabled: false, isClosed: false }); // others have reasons of their own
    }
    if (first < 0) this.panels[0].status.report(empty);
    else if (panels[0].source < 0) {
      this.panels[0].status.report(`opening ${sources[first].name}`, true);
      this.panels[0].send({ action: "open_model", source: first });
    }
  }
}

function render({ model, el }) {
  const explorer = new Explorer(model, el);
  const disconnect = connect(explorer, model, { keydown: event => explorer.onKey(event) });
  // JupyterLab takes outputs out of the page and puts them back, and changes its theme, without an event.
  const check = () => {
    for (const panel of explorer.panels) {
      panel.grid.checkSize();
      panel.checkWidth();
      panel.map.checkTheme();
    }
  };
  const timer = setInterval(check, 300);
  return () => {
    clearInterval(timer);
    disconnect();
  };
}
export default { render };
