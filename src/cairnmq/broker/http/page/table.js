// A table whose rows are found again by their key and changed in place.

import { make, setAttribute, setClass, setText, show } from "./dom.js";
import { natural, number } from "./format.js";

const LONG = 18;
const narrow = matchMedia("(max-width: 700px)");

// A column: {head, text (default: numbers, to the right), hint, wide (left out on a phone), by(row) to sort by,
// fill(cell, row)}; `first` makes what stays in a cell, once. The first column is the row's name.
export class Table {
  constructor(place, { caption, columns, key, sort, descending = false, shown = 100, shownNarrow = 25, className = "" }) {
    this.columns = columns;
    this.key = key;
    this.sort = sort;
    this.descending = descending;
    this.step = narrow.matches ? shownNarrow : shown;
    this.shown = this.step;
    this.rows = new Map();
    this.ranks = new Map();
    this.all = [];
    this.head = make("tr");
    this.body = make("tbody");
    this.table = make("table", { class: className }, make("caption", { class: "unseen" }, caption),
      make("thead", {}, this.head), this.body);
    this.empty = make("div", { class: "empty" });
    this.more = make("button", { type: "button", class: "plain more", onclick: () => { this.shown += this.step; this.draw(); } });
    this.columns.forEach((column, index) => this.head.append(this.heading(column, index)));
    place.append(this.table, this.more, this.empty);
  }

  heading(column, index) {
    const classes = `${column.text ? "text" : ""} ${column.wide ? "wide" : ""} ${column.className ?? ""}`;
    const cell = make("th", { scope: "col", class: classes, title: column.hint });
    if (!column.by) {
      cell.append(column.head);
      return cell;
    }
    cell.append(make("button", { type: "button", class: "sort", onclick: () => this.sortBy(index) }, column.head));
    return cell;
  }

  sortBy(index) {
    const column = this.columns[index];
    this.descending = this.sort === index ? !this.descending : !column.text;
    this.sort = index;
    this.draw(true);
  }

  // `note` is what stands there instead of a table: nothing if there are rows.
  set(rows, note) {
    this.all = rows;
    this.empty.replaceChildren(...(rows.length ? [] : this.noted(note)));
    this.draw();
  }

  noted(note) {
    const parts = Array.isArray(note) ? note : [note ?? ""];
    const told = parts.join("\n");
    if (this.told === told) return [...this.empty.childNodes];
    this.told = told;
    return parts.map(part => part.startsWith("$ ") ? make("code", { class: "command" }, part.slice(2)) : make("p", {}, part));
  }

  // Natural order costs much for very many names: each is ranked once.
  rank(column, rows) {
    const values = rows.map(row => column.by(row));
    if (values.some(value => !this.ranks.has(value))) {
      this.ranks = new Map([...new Set(values)].sort(natural).map((value, rank) => [value, rank]));
    }
    return value => this.ranks.get(value);
  }

  ordered() {
    const column = this.columns[this.sort];
    if (!column?.by) return this.all;
    const rank = column.text ? this.rank(column, this.all) : value => value ?? -1;
    const sign = this.descending ? -1 : 1;
    const ranked = this.all.map((row, index) => [rank(column.by(row)), index, row]);
    ranked.sort((a, b) => sign * (a[0] - b[0]) || a[1] - b[1]);
    return ranked.map(each => each[2]);
  }

  // Rows do not change places while somebody is in them with the keyboard or has selected something.
  get inUse() {
    const selection = getSelection();
    return this.body.contains(document.activeElement)
      || (!selection.isCollapsed && selection.rangeCount > 0 && selection.getRangeAt(0).intersectsNode(this.body));
  }

  draw(move = false) {
    const rows = this.ordered();
    const visible = rows.slice(0, this.shown);
    show(this.table, rows.length);
    show(this.more, rows.length > visible.length);
    setText(this.more, `Show ${number(Math.min(this.step, rows.length - visible.length))} more of ${number(rows.length)}`);
    this.columns.forEach((column, index) => {
      const order = this.sort === index && rows.length > 1 ? (this.descending ? "descending" : "ascending") : column.by && "none";
      setAttribute(this.head.children[index], "aria-sort", order || undefined);
    });
    setClass(this.table, "long-names", this.columns[0].long && visible.some(row => this.columns[0].by(row).length > LONG));
    const wanted = new Set(visible.map(this.key));
    for (const [key, element] of this.rows) {
      if (!wanted.has(key)) {
        element.row.remove();
        element.inner?.remove();
        this.rows.delete(key);
      }
    }
    const fixed = !move && this.inUse;
    let at = this.body.firstChild;
    for (const row of visible) {
      const key = this.key(row);
      let element = this.rows.get(key);
      const isNew = !element;
      if (isNew) {
        element = { row: this.made(row) };
        this.rows.set(key, element);
      }
      this.columns.forEach((column, index) => column.fill(element.row.children[index], row, element));
      if (isNew || (!fixed && element.row !== at)) this.body.insertBefore(element.row, at);
      else if (element.row === at) at = at.nextSibling;
      if (element.inner) {
        if (element.inner.previousSibling !== element.row) element.row.after(element.inner);
        if (at === element.inner) at = at.nextSibling;
      }
    }
  }

  made() {
    return make("tr", {}, ...this.columns.map((column, index) => make(index ? "td" : "th", {
      scope: index ? undefined : "row",
      class: `${column.text ? "text" : ""} ${column.wide ? "wide" : ""} ${column.className ?? ""} ${index ? "" : "name"}`,
    })));
  }
}

export const textColumn = (head, value, options = {}) => ({
  head, text: true, by: value, fill: (cell, row) => setText(cell, String(value(row))), ...options,
});

export const numberColumn = (head, value, format = number, options = {}) => ({
  head, by: value, fill: (cell, row) => setText(cell, format(value(row))), ...options,
});

export const linkColumn = (head, value, link, options = {}) => ({
  head, text: true, long: true, by: value, ...options,
  fill: (cell, row) => {
    const anchor = cell.firstChild ?? cell.appendChild(make("a"));
    setText(anchor, value(row));
    setAttribute(anchor, "href", link(row));
  },
});

export const state = (cell, text) => {
  const dot = cell.firstChild ?? cell.appendChild(make("span", { class: "state" }));
  setText(dot, text);
  setClass(dot, "good", text === "Stable");
};
