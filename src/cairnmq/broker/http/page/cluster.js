// The card of a cluster: what is wrong, brokers, and journals with their leader and replicas. One node has none.

import { $, make, setClass, setText, show } from "./dom.js";
import { bytes, number, span } from "./format.js";
import { Table, numberColumn, textColumn } from "./table.js";

const address = broker => broker.address ? `${broker.address.host}:${broker.address.port}` : "";
const behind = replica => !replica.live ? "down" : replica.lag_bytes ? `${bytes(replica.lag_bytes)} behind`
  : replica.in_sync ? "" : "not in sync";

// Replicas in their order; what is wrong with one stands behind it.
const replicas = journal => journal.replicas.map(replica => {
  const why = behind(replica);
  return why ? `${replica.broker} (${why})` : String(replica.broker);
}).join(", ");

export class ClusterCard {
  constructor() {
    this.brokers = new Table($("brokers"), {
      caption: "Brokers", key: row => row.broker, sort: 0,
      columns: [
        textColumn("Broker", row => String(row.broker)),
        { head: "State", text: true, by: row => row.state, fill: (cell, row) => {
          setText(cell, row.controller ? `${row.state}, controller` : row.state);
          setClass(cell, "bad", row.state === "down");
        } },
        textColumn("Address", address, { wide: true }),
        numberColumn("Leads", row => row.leads, number, { hint: "Journals that it leads" }),
        numberColumn("Hosts", row => row.hosts, number, { hint: "Journals that it has a replica of" }),
        numberColumn("In sync", row => row.in_sync, number, { hint: "Of those, the ones it is in sync with" }),
        textColumn("Seen", row => row.session_age_ms == null ? "–" : `${span(row.session_age_ms / 1000)} ago`, { wide: true }),
      ],
    });
    this.journals = new Table($("cluster-journals"), {
      caption: "Journals of the cluster", key: row => row.journal, sort: 0,
      columns: [
        textColumn("Journal", row => String(row.journal)),
        { head: "Leader", text: true, by: row => row.leader, fill: (cell, row) => {
          setText(cell, row.leader < 0 ? "none" : `broker ${row.leader}`);
          setClass(cell, "bad", row.leader < 0);
        } },
        numberColumn("Epoch", row => row.epoch, number, { wide: true, hint: "Grows with each election" }),
        numberColumn("In sync", row => row.replicas.filter(each => each.in_sync).length, number,
          { hint: "Replicas that are in sync" }),
        textColumn("Replicas", replicas, { hint: "The first is the preferred leader" }),
      ],
    });
  }

  set(cluster) {
    show($("cluster-card"), cluster);
    if (!cluster) return;
    setClass($("cluster-card"), "bad-card", cluster.problems.length);
    const said = [...cluster.problems, ...cluster.notes];
    const list = $("cluster-problems");
    while (list.children.length > said.length) list.lastChild.remove();
    said.forEach((text, index) => {
      const item = list.children[index] ?? list.appendChild(make("li"));
      setText(item, text);
      setClass(item, "bad", index < cluster.problems.length);
    });
    this.brokers.set(cluster.brokers, "");
    this.journals.set(cluster.journals, "No topics yet, so there are no journals.");
  }
}
