// The first view: the broker, its topics, its groups, and what it has on disk.

import { ClusterCard } from "./cluster.js";
import { $, Line, Tiles, make, setClass, setText, show } from "./dom.js";
import { byteRate, bytes, groupLink, known, milliseconds, number, plural, rate, span, topicLink } from "./format.js";
import { Levels, Rates } from "./history.js";
import { Table, linkColumn, numberColumn, state, textColumn } from "./table.js";

export const rates = new Rates();
export const lags = new Levels();
const FEW = 5; // that nobody needs to filter
const DEFAULT_ADDRESS = "127.0.0.1:9092";

// A number with the chart of how it came about.
const charted = (head, value, format, line, options = {}) => ({
  head, by: value, ...options,
  fill: (cell, row, element) => {
    if (!cell.firstChild) {
      element.line = new Line(make("span", { class: "spark wide" }), 72, 20);
      cell.append(element.line.place, make("span", { class: "figure" }));
    }
    setText(cell.lastChild, format(value(row)));
    element.line.set(line(row));
    if (options.warn) {
      setClass(cell, "warn", options.warn(row));
      cell.title = options.warn(row) ? "Lag is growing" : "";
    }
  },
});

export const lagColumn = (lag, key) => charted("Lag", lag, number, row => lags.values(key(row)), {
  hint: "Messages the group has not committed yet", warn: row => lags.grows(key(row)),
});

// No partition has a replica on this broker: the topic's page says who leads them.
const isElsewhere = topic => topic.partitions_here === 0 && topic.partitions > 0;

export class Overview {
  constructor() {
    this.tiles = new Tiles($("tiles"));
    this.topics = new Table($("topics"), {
      caption: "Topics with their messages, rates and sizes", key: row => row.name, sort: 0,
      columns: [
        linkColumn("Topic", row => row.name, row => topicLink(row.name)),
        numberColumn("Partitions", row => row.partitions, number, { wide: true }),
        numberColumn("Messages", row => isElsewhere(row) ? undefined : row.messages, known(number)),
        charted("Rate", row => rates.now(row.name), rate, row => rates.values(row.name),
          { hint: "Messages written per second; the line shows the last two minutes" }),
        numberColumn("Size", row => isElsewhere(row) ? undefined : row.bytes, known(bytes), { hint: "On disk" }),
      ],
    });
    this.groups = new Table($("groups"), {
      caption: "Consumer groups with their state, members and lag", key: row => row.group, sort: 0,
      columns: [
        linkColumn("Group", row => row.group, row => groupLink(row.group)),
        { head: "State", text: true, by: row => row.state, fill: (cell, row) => state(cell, row.state) },
        numberColumn("Members", row => row.members, number, { wide: true }),
        lagColumn(row => row.lag, row => row.group),
      ],
    });
    this.journals = new Table($("journals"), {
      caption: "Journals", key: row => row.journal, sort: 0,
      columns: [
        textColumn("Journal", row => String(row.journal)),
        { head: "State", text: true, fill: (cell, row) => { setText(cell, row.stopped || "writing"); setClass(cell, "bad", row.stopped); } },
        numberColumn("On disk", row => row.bytes, bytes, { hint: "Size of the journal files" }),
        numberColumn("Not synced", row => row.end - row.synced, bytes, { hint: "Written, but not yet synced to disk" }),
        numberColumn("Not split", row => row.end - row.split, bytes, { hint: "In the journal, not yet copied to queue logs" }),
        numberColumn("Written", row => row.end, bytes, { wide: true, hint: "Bytes written to this journal since it was created" }),
      ],
    });
    this.requests = new Table($("requests"), {
      caption: "Requests by API", key: row => row.api, sort: 0,
      columns: [
        textColumn("API", row => row.api),
        numberColumn("Requests", row => row.count),
        numberColumn("p50", row => row.p50_ms, milliseconds, { hint: "Median latency" }),
        numberColumn("p99", row => row.p99_ms, milliseconds, { hint: "99th percentile of latency" }),
      ],
    });
    this.damages = new Table($("damages"), {
      caption: "Damaged files", key: row => `${row.file} ${row.position}`, sort: 0,
      columns: [
        textColumn("File", row => row.file, { className: "long" }),
        textColumn("Position", row => row.position < 0 ? "gone" : number(row.position)),
        textColumn("Queue", row => row.queue),
        textColumn("Offsets", row => row.first_offset < 0 ? "" : row.end_offset < 0 ? `${number(row.first_offset)} and later`
          : `${number(row.first_offset)} to ${number(row.end_offset - 1)}`),
      ],
    });
    this.cluster = new ClusterCard();
    for (const [id, list] of [["topic-filter", () => this.showTopics()], ["group-filter", () => this.showGroups()]]) {
      $(id).addEventListener("input", list);
    }
  }

  async poll(get) {
    const seen = await get("/api/v1/status");
    const { broker } = seen;
    this.seen = seen;
    seen.topics.forEach(topic => rates.see(topic.name, topic.written, broker.uptime_seconds));
    seen.groups.forEach(group => lags.see(group.group, group.lag, broker.uptime_seconds));
    this.showTiles(seen);
    this.showTopics();
    this.showGroups();
    this.cluster.set(seen.cluster);
    this.showStorage(seen);
    return broker;
  }

  showTiles({ broker, topics }) {
    const sum = field => topics.reduce((total, topic) => total + topic[field], 0);
    const { history = {} } = broker;
    const two = "the line shows the last two minutes";
    this.tiles.set("in", { label: "In", value: byteRate(broker.bytes_in_per_second ?? 0),
      hint: `From clients; ${two}`, line: history.bytes_in_per_second ?? [] });
    this.tiles.set("out", { label: "Out", value: byteRate(broker.bytes_out_per_second ?? 0),
      hint: `To clients; ${two}`, line: history.bytes_out_per_second ?? [] });
    this.tiles.set("messages", { label: "Messages", value: number(sum("messages")) });
    this.tiles.set("size", { label: "Stored", value: bytes(sum("bytes")) });
    this.tiles.set("connections", { label: "Connections", value: number(broker.connections ?? 0) });
    this.tiles.set("up", { label: "Up for", value: span(broker.uptime_seconds) });
    setText($("topics-count"), topics.length ? `${number(topics.length)} with ${plural(sum("partitions"), "partition")}` : "");
  }

  get flag() {
    const address = this.seen.broker.bootstrap;
    return address && address !== DEFAULT_ADDRESS ? ` -b ${address}` : "";
  }

  showTopics() {
    if (!this.seen) return;
    const word = $("topic-filter").value.toLowerCase();
    const { topics, broker } = this.seen;
    show($("topic-filter"), topics.length > FEW);
    const found = word ? topics.filter(topic => topic.name.toLowerCase().includes(word)) : topics;
    const note = topics.length ? `No topic has “${word}” in its name.`
      : !broker.ready ? "Topics appear when the broker is ready."
      : ["No topics yet. Create one and send it a message:", `$ cairn topic create${this.flag} -p 3 orders`,
        `$ echo hello | cairn produce${this.flag} orders`];
    this.topics.set(found, note);
  }

  showGroups() {
    if (!this.seen) return;
    const word = $("group-filter").value.toLowerCase();
    const { groups, broker } = this.seen;
    show($("group-filter"), groups.length > FEW);
    setText($("groups-count"), groups.length ? number(groups.length) : "");
    const found = word ? groups.filter(group => group.group.toLowerCase().includes(word)) : groups;
    const note = groups.length ? `No group has “${word}” in its name.`
      : !broker.ready ? "Groups appear when the broker is ready."
      : ["No consumer groups yet. One appears when a consumer joins it:", `$ cairn consume${this.flag} -g billing -o start orders`];
    this.groups.set(found, note);
  }

  showStorage({ broker, journals, splitter, damages }) {
    this.journals.set(journals, "Recovery is running.");
    this.requests.set(Object.entries(broker.requests ?? {}).map(([api, row]) => ({ api, ...row })), "No requests yet.");
    show($("damages-card"), damages.length);
    this.damages.set(damages, "");
    if (splitter.replay_bytes === undefined) return;
    const calm = ["running", "paused"].includes(splitter.state);
    this.fact("Splitter", calm ? splitter.state : "failed", calm ? "Copies records from journals to queue logs" : splitter.state, !calm);
    this.fact("To split", bytes(splitter.lag_bytes), "Journal bytes that are not in queue logs yet");
    this.fact("Replay after a crash", bytes(splitter.replay_bytes), "Journal bytes that a restart would replay after a crash");
    this.fact("Checkpoint", `${span(splitter.checkpoint_age_seconds)} ago`, "A restart reads journals from the last checkpoint");
    this.fact("Sync p50", splitter.flush_p50_ms ? milliseconds(splitter.flush_p50_ms) : "–", "Median duration of a journal sync");
    this.fact("Sync p99", splitter.flush_p99_ms ? milliseconds(splitter.flush_p99_ms) : "–", "99th percentile of the duration of journal syncs");
  }

  fact(name, value, hint, bad = false) {
    this.facts ??= new Map();
    let fact = this.facts.get(name);
    if (!fact) {
      fact = { root: make("div"), value: make("dd") };
      fact.root.append(make("dt", {}, name), fact.value);
      $("splitter").append(fact.root);
      this.facts.set(name, fact);
    }
    fact.root.title = hint;
    setText(fact.value, value);
    setClass(fact.value, "bad", bad);
  }
}
