// One topic: its newest messages, partitions, readers and settings.

import { $, Tiles, make, setAttribute, setClass, setText, show } from "./dom.js";
import { bytes, groupLink, known, number, plural, rate, time, wholeTime } from "./format.js";
import { rates } from "./overview.js";
import { Table, linkColumn, numberColumn, state, textColumn } from "./table.js";

const SETTINGS_EVERY = 10; // polls

const setting = name => textColumn("Setting", row => row.name, { className: "long", ...name });

export class TopicView {
  constructor() {
    this.tiles = new Tiles($("topic-tiles"));
    this.messages = new Table($("messages"), {
      caption: "Newest messages", key: row => `${row.partition}:${row.offset}`, className: "messages", shown: 12, shownNarrow: 8,
      columns: [
        textColumn("Time", row => time(row.timestamp), { by: undefined, className: "time", fill: (cell, row) => {
          setText(cell, time(row.timestamp)); setAttribute(cell, "title", wholeTime(row.timestamp)); } }),
        numberColumn("Partition", row => row.partition, number, { by: undefined, wide: true, className: "partition" }),
        numberColumn("Offset", row => row.offset, number, { by: undefined, className: "offset" }),
        { head: "Key", text: true, className: "key", fill: (cell, row) => this.piece(cell, row, "key") },
        { head: "Value", text: true, className: "value", fill: (cell, row, element) => this.value(cell, row, element) },
      ],
    });
    this.groups = new Table($("topic-groups"), {
      caption: "Groups that read this topic", key: row => row.group, sort: 0,
      columns: [
        linkColumn("Group", row => row.group, row => groupLink(row.group)),
        { head: "State", text: true, by: row => row.state, fill: (cell, row) => state(cell, row.state) },
        numberColumn("Lag", row => row.lag),
      ],
    });
    const value = textColumn("Value", row => row.value ?? "", { className: "long" });
    const name = setting({ fill: (cell, row) => { setText(cell, row.name); cell.title = row.doc; } });
    this.own = new Table($("settings"), {
      caption: "Settings of this topic", key: row => row.name, sort: 0, columns: [name, value] });
    this.defaults = new Table($("default-settings"), {
      caption: "All settings", key: row => row.name, sort: 0, columns: [name, value] });
    $("message-partition").addEventListener("input", () => { this.newest = undefined; this.again(); });
    $("message-filter").addEventListener("input", () => this.showMessages());
    $("message-pause").addEventListener("click", () => this.pause(!this.paused));
  }

  open(name, again) {
    this.name = name;
    this.again = again;
    this.polls = 0;
    this.newest = this.opened = undefined;
    $("message-partition").value = $("message-filter").value = "";
    this.pause(false);
    setText($("topic-name"), name);
    show($("topic-missing"), false);
    show($("topic-content"), false);
  }

  pause(paused) {
    this.paused = paused;
    setText($("message-pause"), paused ? "Resume" : "Pause");
    setAttribute($("message-pause"), "aria-pressed", String(paused));
    if (!paused && this.newest) this.again();
  }

  async poll(get) {
    const path = `/api/v1/topics/${encodeURIComponent(this.name)}`;
    const { name } = this;
    const [broker, topic] = await Promise.all([get("/api/v1/broker"), get(path)]);
    if (name !== this.name) return broker;
    show($("topic-missing"), !topic);
    show($("topic-content"), topic);
    setText($("topic-missing"), broker.ready ? `There is no topic “${name}”.` : "The broker is not ready yet.");
    if (!topic) return broker;
    const { partitions } = topic;
    const here = partitions.filter(isHere);
    const sum = field => here.reduce((total, row) => total + field(row), 0);
    rates.see(name, sum(row => row.visible), broker.uptime_seconds);
    this.tiles.set("messages", { label: "Messages", value: number(sum(row => row.visible - row.start)) });
    this.tiles.set("rate", { label: "Rate", value: rate(rates.now(name)), line: rates.values(name),
      hint: "Messages written per second; the line shows the last two minutes" });
    this.tiles.set("size", { label: "Size", value: bytes(sum(row => row.bytes)), hint: "On disk" });
    this.tiles.set("partitions", { label: "Partitions", value: number(partitions.length) });
    this.partitions ??= partitionTable(partitions.some(row => row.leader !== undefined));
    this.partitions.set(partitions, "");
    await Promise.all([this.pollMessages(get, path), this.pollReaders(get, path), this.pollSettings(get, path)]);
    return broker;
  }

  async pollMessages(get, path) {
    if (this.paused && this.newest) return;
    const partition = $("message-partition").value;
    const newest = await get(`${path}/messages${partition ? `?partition=${partition}` : ""}`);
    if (partition !== $("message-partition").value || (this.paused && this.newest)) return;
    this.newest = newest;
    this.showMessages();
  }

  showMessages() {
    if (!this.newest) return;
    const { error, messages = [], problems = [], partitions, partitions_read: read } = this.newest;
    const word = $("message-filter").value.toLowerCase();
    const has = text => text?.toLowerCase().includes(word);
    const found = word ? messages.filter(row => has(row.key) || has(row.value)) : messages;
    const notes = [error, ...problems.map(row => `Partition ${row.partition}: ${row.error}`)];
    if (read < partitions) notes.push(`From ${read} of ${plural(partitions, "partition")} with messages; choose one to see the others.`);
    setText($("message-note"), notes.filter(Boolean).slice(0, 5).join(" · "));
    show($("message-note"), notes.some(Boolean));
    this.messages.set(found, messages.length ? `None of the ${number(messages.length)} messages shown has “${word}” in it.`
      : error ? "" : "No messages yet.");
  }

  piece(cell, row, field) {
    const none = row[field] === null || row[field] === undefined;
    setText(cell, none ? "null" : row[field]);
    setClass(cell, "none", none);
    setClass(cell, "hex", row[`${field}_encoding`] === "hex");
  }

  // A row is opened and closed by its value; while one is open, the list stands still.
  value(cell, row, element) {
    if (!cell.firstChild) {
      cell.append(make("button", { type: "button", class: "opens", "aria-expanded": "false",
        onclick: () => this.toggle(cell.firstChild, element) }));
    }
    element.message = row;
    this.piece(cell.firstChild, row, "value");
    setClass(cell.parentNode, "undecided", row.transaction);
  }

  toggle(button, element) {
    if (element.inner) {
      element.inner.remove();
      element.inner = undefined;
    } else {
      element.inner = make("tr", { class: "inner" }, make("td", { colspan: "5" }, this.details(element.message)));
      element.row.after(element.inner);
      this.pause(true);
    }
    setAttribute(button, "aria-expanded", String(Boolean(element.inner)));
  }

  details(row) {
    const facts = make("dl", { class: "facts" });
    const fact = (name, text) => facts.append(make("div", {}, make("dt", {}, name), make("dd", {}, text)));
    fact("Partition", number(row.partition));
    fact("Offset", number(row.offset));
    fact("Timestamp", wholeTime(row.timestamp));
    fact("Key", row.key === null ? "null" : `${row.key}${cut(row, "key")}`);
    row.headers.forEach(header => fact(`Header ${header.key}`, header.value === null ? "null" : `${header.value}${cut(header, "value")}`));
    if (row.headers_count > row.headers.length) fact("More headers", number(row.headers_count - row.headers.length));
    if (row.transaction) fact("Transaction", row.transaction === "open" ? "not committed yet" : "aborted");
    const size = row.value === null ? "null: deletes the key in a compacted topic" : `${bytes(row.value_bytes)}${row.value_encoding ? ", binary" : ""}${cut(row, "value")}`;
    fact("Value", size);
    return row.value === null ? facts : make("div", {}, facts, make("pre", { tabindex: "0" }, pretty(row)));
  }

  async pollReaders(get, path) {
    this.groups.set(await get(`${path}/groups`) ?? [], "No group has committed offsets here.");
  }

  async pollSettings(get, path) {
    if (this.polls++ % SETTINGS_EVERY) return;
    const settings = await get(`${path}/settings`) ?? [];
    this.own.set(settings.filter(row => row.own), "All settings have their defaults.");
    this.defaults.set(settings, "");
  }
}

// Of partitions without a replica on this broker only the cluster's metadata are known.
const isHere = row => row.visible !== null;

function partitionTable(inCluster) {
  const columns = [
    numberColumn("Partition", row => row.partition),
    numberColumn("First offset", row => row.start, known(number), { wide: true, hint: "Offset of the oldest message" }),
    numberColumn("End offset", row => row.visible, known(number), { hint: "Offset of the next message" }),
    numberColumn("Messages", row => isHere(row) ? row.visible - row.start : undefined, known(number)),
    numberColumn("Size", row => row.bytes, known(bytes)),
  ];
  if (inCluster) {
    columns.push(numberColumn("Leader", row => row.leader, value => value < 0 ? "none" : number(value),
      { hint: "The broker that takes and serves its messages" }));
    columns.push(textColumn("Replicas", row => row.replicas.join(", "), { wide: true, hint: "Brokers that have a copy" }));
  }
  return new Table($("partitions"), { caption: "Partitions", key: row => row.partition, sort: 0, columns });
}

function cut(row, field) {
  const shown = row[`${field}_encoding`] === "hex" ? (row[field].length + 1) / 3 : new TextEncoder().encode(row[field]).length;
  return shown < row[`${field}_bytes`] ? ` … (the first ${bytes(shown)} of ${bytes(row[`${field}_bytes`])})` : "";
}

function pretty(row) {
  if (row.value_encoding === "hex" || !/^\s*[[{]/.test(row.value)) return row.value;
  try {
    JSON.parse(row.value);
  } catch {
    return row.value;
  }
  return indented(row.value);
}

// Not by way of numbers, which would lose the digits of large ones.
function indented(json) {
  let out = "", depth = 0, quoted = false;
  const line = () => `\n${"  ".repeat(depth)}`;
  for (let i = 0; i < json.length; i++) {
    const c = json[i];
    if (quoted) {
      out += c;
      if (c === "\\") out += json[++i];
      else if (c === '"') quoted = false;
    } else if (c === '"') { quoted = true; out += c; }
    else if (c === "{" || c === "[") { depth++; out += c + line(); }
    else if (c === "}" || c === "]") { depth--; out += line() + c; }
    else if (c === ",") out += c + line();
    else if (c === ":") out += ": ";
    else if (!/\s/.test(c)) out += c;
  }
  return out.replace(/([[{])\s+([\]}])/g, "$1$2");
}
