// Elements: made once, then only what has changed is touched, so that focus, selection and scrolling survive.
// Names and messages come from clients: they are only ever set as text.

export const $ = id => document.getElementById(id);

export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === false) continue;
    if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

// Changes the text node in place: a new one would lose what is selected.
export function setText(element, text) {
  const first = element.firstChild;
  if (first?.nodeType === Node.TEXT_NODE && !first.nextSibling) {
    if (first.data !== text) first.data = text;
  } else {
    element.textContent = text;
  }
}

export function setAttribute(element, name, value) {
  if (value === undefined || value === false) {
    if (element.hasAttribute(name)) element.removeAttribute(name);
  } else if (element.getAttribute(name) !== String(value)) {
    element.setAttribute(name, value);
  }
}

export function setClass(element, name, on) {
  if (element.classList.contains(name) !== Boolean(on)) element.classList.toggle(name);
}

export const show = (element, shown) => { if (element.hidden === Boolean(shown)) element.hidden = !shown; };

// Tiles: {key: {label, value, hint, line}}; a line is the values of a small chart.
export class Tiles {
  constructor(place) {
    this.place = place;
    this.tiles = new Map();
  }

  set(key, { label, value, hint, line, warn }) {
    let tile = this.tiles.get(key);
    if (!tile) {
      const chart = line && new Line(make("div", { class: "chart" }), 120, 32);
      tile = { root: make("div", { class: chart ? "tile charted" : "tile" }), value: make("b"), label: make("span"), chart };
      tile.root.append(tile.label, tile.value, ...(chart ? [chart.place] : []));
      this.place.append(tile.root);
      this.tiles.set(key, tile);
    }
    setText(tile.label, label);
    setText(tile.value, value);
    setAttribute(tile.root, "title", hint);
    setClass(tile.root, "warn", warn);
    tile.chart?.set(line);
  }
}

const FULL = 12;

// A small chart of the last values.
export class Line {
  constructor(place, width, height) {
    const part = (tag, attributes) => {
      const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
      for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
      return element;
    };
    this.place = place;
    this.width = width;
    this.height = height;
    const svg = part("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true", class: "line" });
    this.area = part("path", { class: "area" });
    this.stroke = part("path", { class: "stroke", "vector-effect": "non-scaling-stroke" });
    svg.append(this.area, this.stroke);
    place.append(svg);
  }

  // The newest is at the right; the first few do not fill the width.
  set(values) {
    const count = Math.max(values.length, FULL);
    const top = Math.max(...values, 0);
    const step = this.width / (count - 1);
    const from = this.width - (values.length - 1) * step;
    const points = values.map((value, index) =>
      `${(from + index * step).toFixed(1)} ${(this.height - 1.5 - (value / top) * (this.height - 3)).toFixed(1)}`);
    const path = top && points.length > 1 ? `M${points.join("L")}` : "";
    setAttribute(this.stroke, "d", path);
    setAttribute(this.area, "d", path && `${path}L${this.width} ${this.height}L${from.toFixed(1)} ${this.height}Z`);
  }
}
