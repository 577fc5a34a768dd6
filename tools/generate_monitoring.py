"""Makes deploy/grafana-dashboard.json, deploy/prometheus-alerts.yml and the tables of docs/monitor.md from the metric
table. Run it after a change there: `python tools/generate_monitoring.py`; a test fails if the files are not current."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from cairnmq.broker.metric_table import METRICS, SECTIONS, Metric

ROOT = Path(__file__).resolve().parent.parent
PAGE = "docs/monitor.md"
WIDTH, HEIGHT = 8, 7
PICKED = '{job="$job", instance=~"$instance"}'
QUANTILES = (0.5, 0.99)


class Alert(NamedTuple):
    """`means` and `remedy` are for whoever is woken up by it."""

    name: str
    expression: str
    minutes: int
    severity: str
    means: str
    remedy: str


ALERTS = [
    Alert("CairnDown", 'up{job="cairnmq"} == 0', 1, "critical",
          "The broker does not respond to Prometheus.",
          "Look at the service and its log."),
    Alert("CairnNotReady", "cairn_ready == 0", 2, "critical",
          "The broker runs but does not serve requests.",
          "/health/ready says why."),
    Alert("CairnOfflineJournals", "cairn_offline_journals > 0", 1, "critical",
          "Journals have no leader: their partitions can be neither written nor read.",
          "`cairn cluster health` says which brokers they wait for. Start those."),
    Alert("CairnReplicasOutOfSync", "sum by (instance) (cairn_out_of_sync_replicas) > 0", 10, "warning",
          "Replicas have not been in sync for ten minutes: fewer brokers may die than planned.",
          "`cairn cluster health` names brokers and reasons: one that is down, slow or cut off."),
    Alert("CairnJournalStopped", "cairn_journal_stopped == 1", 1, "critical",
          "A journal takes no writes because its disk is full or has failed.",
          "/health/ready says why and how much room is missing. The broker goes on by itself."),
    Alert("CairnJournalDamaged", "cairn_journal_damaged == 1", 0, "critical",
          "A journal does not read back after the checkpoint.",
          "Check the disk, and see docs/recovery.md."),
    Alert("CairnDataDamaged", "increase(cairn_damages_total[1h]) > 0", 0, "critical",
          "Stored records did not read back.",
          "Check the disk. `cairn verify` and /api/v1/status name the files."),
    Alert("CairnDiskAlmostFull", "cairn_disk_free_bytes / cairn_disk_size_bytes < 0.1", 5, "warning",
          "Less than a tenth of a disk is free.",
          "Delete topics, shorten retention or make the disk larger."),
    Alert("CairnSplitterBehind", "cairn_split_lag_bytes > 512 * 1024 * 1024", 10, "warning",
          "The splitter is half a GiB behind; at cairn.unsplit.bytes.max producers wait.",
          "Look at the load of the read disk and at the log."),
    Alert("CairnSplitterRestarts", "increase(cairn_splitter_restarts_total[15m]) > 2", 0, "warning",
          "The splitter process ends again and again.",
          "The log says why."),
    Alert("CairnSlowSyncs",
          "histogram_quantile(0.99, sum by (instance, journal, le) (rate(cairn_flush_seconds_bucket[5m]))) > 0.5", 10,
          "warning", "One in a hundred syncs of a journal takes over half a second.",
          "Give the journals a disk of their own (--journal-dir)."),
    Alert("CairnGroupFallsBehind",
          "sum by (instance, group, topic) (cairn_group_lag) > 1000 "
          "and sum by (instance, group, topic) (deriv(cairn_group_lag[15m])) > 0", 15, "warning",
          "The lag of a consumer group has grown for a quarter of an hour.",
          "Add consumers, or see what they wait for."),
    Alert("CairnConnectionsRefused", "increase(cairn_connections_refused_total[5m]) > 0", 0, "warning",
          "Clients were refused because of max.connections or the limit of open files.",
          "Raise the limit, or find who opens so many."),
    Alert("CairnFilesAlmostUsed", "process_open_fds / process_max_fds > 0.8", 5, "warning",
          "Four fifths of the open files that the system allows are used.",
          "Raise LimitNOFILE."),
]  # fmt: skip


def unit_of(name: str, metric: Metric) -> str:
    """Grafana's name for the unit that the metric's own name tells."""
    if name.endswith("start_time_seconds"):
        return "dateTimeAsIso"
    if name.endswith("cpu_seconds_total"):
        return "percentunit"  # seconds in a second
    if "bytes" in name:
        return "Bps" if metric.kind == "counter" else "bytes"
    if name.endswith("_ratio"):
        return "percentunit"
    return "s" if "seconds" in name else "short"


def queries_of(name: str, metric: Metric) -> list[tuple[str, str]]:
    """(expression, legend). Partitions are summed up: a dashboard shows topics and groups."""
    labels = [label for label in metric.labels if label != "partition"]
    legend = " ".join(f"{{{{{label}}}}}" for label in labels) or name
    by = ", ".join(labels)
    if metric.kind == "histogram":
        return [
            (
                f"histogram_quantile({share}, sum by ({by}, le) (rate({name}_bucket{PICKED}[$__rate_interval])))",
                f"p{share * 100:g} {legend}",
            )
            for share in QUANTILES
        ]
    query = f"rate({name}{PICKED}[$__rate_interval])" if metric.kind == "counter" else name + PICKED
    return [(f"sum by ({by}) ({query})" if "partition" in metric.labels else query, legend)]


def panel(name: str, metric: Metric, number: int, place: int, top: int) -> dict[str, Any]:
    return {
        "id": number,
        "type": "timeseries",
        "title": name.removesuffix("_total"),
        "description": metric.help,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": {"h": HEIGHT, "w": WIDTH, "x": place % 3 * WIDTH, "y": top + place // 3 * HEIGHT},
        "fieldConfig": {"defaults": {"unit": unit_of(name, metric), "min": 0}, "overrides": []},
        "targets": [
            {"refId": "ABC"[n], "expr": expression, "legendFormat": legend}
            for n, (expression, legend) in enumerate(queries_of(name, metric))
        ],
    }


def dashboard() -> str:
    panels: list[dict[str, Any]] = []
    top = 0
    for section in SECTIONS:
        panels.append(
            {
                "id": len(panels) + 1,
                "type": "row",
                "title": section,
                "collapsed": False,
                "panels": [],
                "gridPos": {"h": 1, "w": 24, "x": 0, "y": top},
            }
        )
        top += 1
        members = [(name, metric) for name, metric in METRICS.items() if metric.section == section]
        for place, (name, metric) in enumerate(members):
            panels.append(panel(name, metric, len(panels) + 1, place, top))
        top += -(-len(members) // 3) * HEIGHT
    variables = [
        {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"},
        {
            "name": "job",
            "type": "query",
            "label": "Job",
            "datasource": {"type": "prometheus", "uid": "${datasource}"},
            "query": "label_values(cairn_ready, job)",
            "refresh": 1,
        },
        {
            "name": "instance",
            "type": "query",
            "label": "Broker",
            "datasource": {"type": "prometheus", "uid": "${datasource}"},
            "query": 'label_values(cairn_ready{job="$job"}, instance)',
            "refresh": 2,
            "includeAll": True,
            "multi": True,
        },
    ]
    whole = {
        "title": "CairnMQ",
        "uid": "cairnmq",
        "tags": ["cairnmq", "kafka"],
        "schemaVersion": 39,
        "version": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": variables},
        "panels": panels,
    }
    return json.dumps(whole, indent=1) + "\n"


def alert_rules() -> str:
    """Each text in JSON's quotes, which YAML reads as they are."""
    lines = [
        "# Made by tools/generate_monitoring.py: change ALERTS there.",
        "groups:",
        "  - name: cairnmq",
        "    rules:",
    ]
    for alert in ALERTS:
        lines += [
            f"      - alert: {alert.name}",
            f"        expr: {json.dumps(alert.expression)}",
            f"        for: {alert.minutes}m",
            "        labels:",
            f"          severity: {alert.severity}",
            "        annotations:",
            f"          summary: {json.dumps(alert.means)}",
            f"          description: {json.dumps(alert.remedy)}",
        ]
    return "\n".join(lines) + "\n"


def metric_tables() -> str:
    lines: list[str] = []
    for section in SECTIONS:
        lines += [f"### {section}", "", "| metric | type | labels | |", "|---|---|---|---|"]
        for name, metric in METRICS.items():
            if metric.section == section:
                labels = ", ".join(f"`{label}`" for label in metric.labels)
                lines.append(f"| `{name}` | {metric.kind} | {labels} | {metric.help} |")
        lines.append("")
    return "\n".join(lines)


def alert_table() -> str:
    lines = ["| alert | severity | what it means | what to do |", "|---|---|---|---|"]
    lines += [f"| {alert.name} | {alert.severity} | {alert.means} | {alert.remedy} |" for alert in ALERTS]
    return "\n".join(lines) + "\n"


def with_tables(page: str) -> str:
    for mark, text in (("metrics", metric_tables()), ("alerts", alert_table())):
        begin, end = f"<!-- made: {mark} -->\n", "<!-- end -->"
        before, _, rest = page.partition(begin)
        page = before + begin + text + end + rest.partition(end)[2]
    return page


def files() -> dict[str, str]:
    """Path -> what belongs there."""
    return {
        "deploy/grafana-dashboard.json": dashboard(),
        "deploy/prometheus-alerts.yml": alert_rules(),
        PAGE: with_tables((ROOT / PAGE).read_text()),
    }


if __name__ == "__main__":
    for path, text in files().items():
        (ROOT / path).write_text(text)
        print(path)
