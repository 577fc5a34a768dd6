"""The status page: one self-contained, read-only HTML document that polls /api/v1/status."""

from __future__ import annotations

PAGE = b"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>CairnMQ</title>
<link rel="icon" href="data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 32 32'%3E%3Cg
 fill='%230f766e'%3E%3Cellipse cx='16' cy='26' rx='13' ry='4'/%3E%3Cellipse cx='16' cy='17' rx='9'
 ry='3.6'/%3E%3Cellipse cx='16' cy='9' rx='5.5' ry='3'/%3E%3C/g%3E%3C/svg%3E">
<style>
:root { color-scheme: light dark; --bg: #f6f7f8; --card: #fff; --ink: #17202a; --dim: #64707d; --line: #e3e7eb;
  --accent: #0f766e; --bad: #b42318; --warn: #b54708; --bar: #cfe7e4; }
@media (prefers-color-scheme: dark) { :root { --bg: #0f1417; --card: #171e22; --ink: #e6ebef; --dim: #93a1ad;
  --line: #28323a; --accent: #2dd4bf; --bad: #f97066; --warn: #fdb022; --bar: #134e4a; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--bg); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
header { display: flex; flex-wrap: wrap; align-items: center; gap: .4rem 1rem; padding: 1rem 1.5rem;
  background: var(--card); border-bottom: 1px solid var(--line); }
header svg { width: 28px; height: 28px; fill: var(--accent); }
h1 { font-size: 1.15rem; margin: 0; letter-spacing: .01em; }
h2 { font-size: .8rem; margin: 0 0 .6rem; color: var(--dim); text-transform: uppercase; letter-spacing: .07em; }
header .addr { color: var(--dim); font-family: ui-monospace, monospace; font-size: .85rem; }
.pill { margin-left: auto; padding: .15rem .7rem; border-radius: 99px; font-size: .82rem; font-weight: 600;
  border: 1px solid currentColor; color: var(--accent); }
.pill.bad { color: var(--bad); }
main { max-width: 1200px; margin: 0 auto; padding: 1.25rem 1.5rem 3rem; display: grid; gap: 1.25rem; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 1rem 1.1rem;
  overflow-x: auto; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(125px, 1fr)); gap: 1rem; }
.tile b { display: block; font-size: 1.35rem; font-weight: 650; font-variant-numeric: tabular-nums; }
.tile span { color: var(--dim); font-size: .82rem; }
table { width: 100%; border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .38rem .6rem; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { color: var(--dim); font-weight: 550; font-size: .82rem; }
th.text, td.text { text-align: left; }
tr:last-child td { border-bottom: 0; }
td.name { font-family: ui-monospace, monospace; font-size: .88rem; max-width: 34rem; overflow: hidden;
  text-overflow: ellipsis; }
tr.inner td { background: var(--bg); }
button { all: unset; cursor: pointer; color: var(--accent); }
button:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
.bar { display: flex; align-items: baseline; gap: 1rem; }
.bar input { margin-left: auto; font: inherit; font-size: .85rem; padding: .15rem .6rem; border-radius: 6px;
  border: 1px solid var(--line); background: var(--bg); color: var(--ink); width: 11rem; max-width: 45%; }
.empty { color: var(--dim); padding: .3rem 0; }
.lag { color: var(--warn); }
.bad { color: var(--bad); }
.tiles.below { margin-top: 1rem; }
@media (max-width: 600px) { main { padding: 1rem .75rem 2rem; } header { padding: .8rem 1rem; }
  .tiles { grid-template-columns: repeat(3, 1fr); gap: .7rem; } .tile b { font-size: 1.1rem; }
  td.name { max-width: 11rem; } th, td { padding: .38rem .4rem; } }
footer { color: var(--dim); font-size: .82rem; text-align: center; padding-bottom: 2rem; }
a { color: var(--accent); }
</style></head><body>
<header>
<svg viewBox="0 0 32 32" aria-hidden="true"><ellipse cx="16" cy="26" rx="13" ry="4"/><ellipse cx="16" cy="17" rx="9"
ry="3.6"/><ellipse cx="16" cy="9" rx="5.5" ry="3"/></svg>
<h1>CairnMQ</h1><span class="addr" id="addr"></span><span class="pill" id="ready">connecting</span>
</header>
<main>
<section><h2>Broker</h2><div class="tiles" id="tiles"></div></section>
<section><div class="bar"><h2>Topics</h2><input id="topic-filter" type="search" placeholder="filter"
 aria-label="filter topics"></div><div id="topics"></div></section>
<section><div class="bar"><h2>Groups</h2><input id="group-filter" type="search" placeholder="filter"
 aria-label="filter groups"></div><div id="groups"></div></section>
<section><h2>Journals and splitter</h2><div id="journals"></div><div id="damages"></div><div class="tiles below"
id="splitter"></div></section>
</main>
<footer><span id="version">CairnMQ</span> &middot; read-only &middot; <a href="/metrics">metrics</a>
&middot; <a href="/api/v1/status">JSON</a></footer>
<script>
"use strict";
const $ = id => document.getElementById(id);
const number = n => Number(n).toLocaleString("en");
const bytes = n => { const units = ["B", "KiB", "MiB", "GiB", "TiB"]; let i = 0;
  while (n >= 1024 && i < 4) { n /= 1024; i++; } return n.toFixed(i && n < 10 ? 1 : 0) + " " + units[i]; };
const span = s => { s = Math.floor(s); const d = Math.floor(s / 86400), h = Math.floor(s / 3600) % 24,
  m = Math.floor(s / 60) % 60; return d ? d + " d " + h + " h" : h ? h + " h " + m + " min"
  : m ? m + " min " + s % 60 + " s" : s + " s"; };
// Names come from clients: only ever set as text, never as markup.
const make = (tag, text, cls) => { const e = document.createElement(tag); if (text !== undefined) e.textContent = text;
  if (cls) e.className = cls; return e; };
// The first column is a name; columns of which `texts` says so hold words and stand to the left.
const table = (heads, rows, empty, texts = []) => { if (!rows.length) return make("div", empty, "empty");
  const t = make("table"), h = make("tr"), cls = i => i ? texts.includes(i) ? "text" : "" : "name text";
  heads.forEach((x, i) => h.append(make("th", x, i && !texts.includes(i) ? "" : "text"))); t.append(h);
  rows.forEach(({cells, inner}) => { const tr = make("tr", undefined, inner ? "inner" : "");
    cells.forEach((c, i) => { const td = make("td", c instanceof Node ? undefined : c, cls(i));
      if (c instanceof Node) td.append(c); else if (!i) td.title = c; tr.append(td); }); t.append(tr); });
  return t; };
const fill = (id, tiles) => $(id).replaceChildren(...tiles.map(([v, k]) => {
  const t = make("div", undefined, "tile"); t.append(make("b", v), make("span", k)); return t; }));
const lagging = n => make("span", number(n), n ? "lag" : "");
// A broker may hold 100,000 topics: a page shows some, and the filter finds the others.
const SHOWN = 200;
const chosen = (all, name, filter) => { const word = $(filter).value.toLowerCase();
  return word ? all.filter(x => x[name].toLowerCase().includes(word)) : all; };
const rest = (place, found) => { if (found.length > SHOWN) $(place).append(make("p", number(SHOWN) + " of "
  + number(found.length) + " shown; the filter finds the others", "empty")); };
const opened = new Set();
let last = null, seen = null;
const rate = (now, field) => { if (!last) return 0; const dt = now.uptime_seconds - last.uptime_seconds;
  return dt > 0 ? Math.max(0, (now[field] - last[field]) / dt) : 0; };
function show(s) {
  const b = s.broker;
  $("addr").textContent = b.bootstrap ? b.bootstrap + "  \\u00b7  node " + b.node_id + "  \\u00b7  cluster "
    + b.cluster_id : "";
  $("ready").textContent = b.ready ? "ready" : b.reasons.join("; ");
  $("ready").className = b.ready ? "pill" : "pill bad";
  const messages = s.topics.reduce((n, t) => n + t.messages, 0);
  fill("tiles", [[span(b.uptime_seconds), "up"], [number(b.connections ?? 0), "connections"],
    [bytes(rate(b, "bytes_in")) + "/s", "in"], [bytes(rate(b, "bytes_out")) + "/s", "out"],
    [number(s.topics.length), "topics"], [number(s.topics.reduce((n, t) => n + t.partitions, 0)), "partitions"],
    [number(messages), "messages"]]);
  $("version").textContent = "CairnMQ " + b.version;
  seen = s;
  lists();
  const sp = s.splitter;
  $("journals").replaceChildren(table(["journal", "state", "end", "on disk", "not synced", "not split"],
    s.journals.map(j => ({cells: ["journal " + j.journal, make("span", j.stopped || "writing", j.stopped ? "bad" : ""),
      number(j.end), bytes(j.bytes), bytes(j.end - j.synced), bytes(j.end - j.split)]})), "Recovery is running.", [1]));
  $("damages").replaceChildren(s.damages.length ? table(["damaged file", "position", "queue", "offsets"],
    s.damages.map(d => ({cells: [make("span", d.file, "bad"), d.position < 0 ? "gone" : number(d.position), d.queue,
      d.first_offset < 0 ? "" : d.first_offset + (d.end_offset < 0 ? " and more" : " to " + (d.end_offset - 1))]})), "",
    [2]) : "");
  fill("splitter", sp.replay_bytes === undefined ? [] : [[["running", "paused"].includes(sp.state)
    ? sp.state : "in trouble", "splitter"],
    [bytes(sp.lag_bytes), "to split"], [bytes(sp.replay_bytes), "replay if killed now"],
    [span(sp.checkpoint_age_seconds) + " ago", "checkpoint"], [sp.flush_p50_ms.toFixed(1) + " ms", "flush p50"],
    [sp.flush_p99_ms.toFixed(1) + " ms", "flush p99"]]);
  last = b;
}
function lists() {
  if (!seen) return;
  const topics = chosen(seen.topics, "name", "topic-filter"), groups = chosen(seen.groups, "group", "group-filter");
  $("topics").replaceChildren(table(["topic", "partitions", "messages", "size"], topics.slice(0, SHOWN).map(
    t => ({cells: [t.name, number(t.partitions), number(t.messages), bytes(t.bytes)]})),
    seen.topics.length ? "No topic has this in its name." : "No topics yet."));
  rest("topics", topics);
  const rows = [];
  groups.slice(0, SHOWN).forEach(g => { const open = opened.has(g.group), name = make("button",
      (open ? "\\u25be " : "\\u25b8 ") + g.group);
    name.title = g.group; name.setAttribute("aria-expanded", open);
    name.onclick = () => { if (!opened.delete(g.group)) opened.add(g.group); lists(); };
    rows.push({cells: [name, g.state, number(g.members), number(g.partitions), lagging(g.lag)]});
    if (open) g.offsets.forEach(o => rows.push({inner: true, cells: ["\\u2003" + o.topic + "-" + o.partition, "",
      "", number(o.committed) + " of " + number(o.end), lagging(o.lag)]}));
    if (open && g.offsets.length < g.partitions) rows.push({inner: true, cells: ["\\u2003the " + g.offsets.length
      + " furthest behind; all in /api/v1/groups/", "", "", "", ""]}); });
  $("groups").replaceChildren(table(["group", "state", "members", "partitions", "lag"], rows,
    seen.groups.length ? "No group has this in its name." : "No groups yet.", [1]));
  rest("groups", groups);
}
$("topic-filter").oninput = $("group-filter").oninput = lists;
async function poll() {
  try { show(await (await fetch("/api/v1/status")).json()); }
  catch (e) { $("ready").textContent = "not reachable"; $("ready").className = "pill bad"; last = null; }
  setTimeout(poll, 2000);
}
poll();
</script></body></html>
"""
