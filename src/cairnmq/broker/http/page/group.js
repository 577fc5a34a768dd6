// One group: its members, and how far it is in every partition.

import { $, Tiles, setText, show } from "./dom.js";
import { number, topicLink } from "./format.js";
import { lagColumn, lags } from "./overview.js";
import { Table, linkColumn, numberColumn, textColumn } from "./table.js";

export class GroupView {
  constructor() {
    this.tiles = new Tiles($("group-tiles"));
    this.members = new Table($("members"), {
      caption: "Members", key: row => row.member_id, sort: 0,
      columns: [
        textColumn("Client", row => row.client_id, { className: "long" }),
        textColumn("Host", row => row.host),
        numberColumn("Partitions", row => row.partitions ?? undefined, value => value === undefined ? "–" : number(value),
          { hint: "Number of partitions assigned to this member" }),
        textColumn("Member id", row => row.instance_id ?? row.member_id, { wide: true, className: "long mono" }),
      ],
    });
    const key = row => `${this.name} ${row.topic} ${row.partition}`;
    this.offsets = new Table($("offsets"), {
      caption: "Committed offsets and lag by partition", key: row => `${row.topic} ${row.partition}`, sort: 0,
      columns: [
        linkColumn("Topic", row => row.topic, row => topicLink(row.topic)),
        numberColumn("Partition", row => row.partition),
        numberColumn("Committed", row => row.committed, number, { hint: "Next offset that the group will read" }),
        numberColumn("End offset", row => row.end, number, { wide: true, hint: "Offset of the next message" }),
        lagColumn(row => row.lag, key),
      ],
    });
    this.key = key;
  }

  open(name) {
    this.name = name;
    setText($("group-name"), name);
    show($("group-missing"), false);
    show($("group-content"), false);
  }

  async poll(get) {
    const { name } = this;
    const [broker, group] = await Promise.all([get("/api/v1/broker"), get(`/api/v1/groups/${encodeURIComponent(name)}`)]);
    if (name !== this.name) return broker;
    show($("group-missing"), !group);
    show($("group-content"), group);
    setText($("group-missing"), broker.ready ? `There is no group “${name}”.` : "The broker is not ready yet.");
    if (!group) return broker;
    lags.see(name, group.lag, broker.uptime_seconds);
    group.offsets.forEach(row => lags.see(this.key(row), row.lag, broker.uptime_seconds));
    this.tiles.set("lag", { label: "Lag", value: number(group.lag), line: lags.values(name), warn: lags.grows(name),
      hint: "Messages the group has not committed yet; the line shows the last two minutes" });
    this.tiles.set("state", { label: "State", value: group.state });
    this.tiles.set("members", { label: "Members", value: number(group.members.length) });
    this.tiles.set("assignor", { label: "Assignor", value: group.assignor || "–", hint: `${group.type} protocol` });
    this.members.set(group.members, "This group has no members at the moment.");
    this.offsets.set(group.offsets, "No committed offsets yet.");
    return broker;
  }
}
