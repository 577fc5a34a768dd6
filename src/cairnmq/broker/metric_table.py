"""Every metric that /metrics may show. The Grafana dashboard, the alert rules and docs/monitor.md are made from it."""

from __future__ import annotations

from msgspec import Struct


class Metric(Struct, frozen=True):
    """`section` is where the dashboard and the page show it. Its unit is in its name."""

    kind: str
    section: str
    help: str
    labels: tuple[str, ...] = ()


BROKER, TRAFFIC, STORAGE, GROUPS, PROCESS = "Broker", "Traffic", "Storage", "Consumer groups", "Processes"
SECTIONS = (BROKER, TRAFFIC, GROUPS, STORAGE, PROCESS)

_LAG = "Records between a group's committed offset and the end of the partition."

METRICS: dict[str, Metric] = {
    "cairn_ready": Metric(
        "gauge", BROKER, "1 when requests are served, 0 while recovery runs or a journal has stopped."
    ),
    "cairn_build_info": Metric(
        "gauge", BROKER, "Always 1; the labels say what runs.", ("version", "kernels", "python")
    ),
    "cairn_connections": Metric("gauge", BROKER, "Open client connections."),
    "cairn_connections_total": Metric("counter", BROKER, "Client connections accepted since the start."),
    "cairn_connections_refused_total": Metric("counter", BROKER, "Connections refused because of max.connections."),
    "cairn_malformed_requests_total": Metric("counter", BROKER, "Requests that could not be read."),
    "cairn_request_seconds": Metric(
        "histogram",
        BROKER,
        "Time from the last byte of a request to its response being handed to the socket.",
        ("api",),
    ),
    "cairn_bytes_in_total": Metric("counter", TRAFFIC, "Bytes read from clients."),
    "cairn_bytes_out_total": Metric("counter", TRAFFIC, "Bytes written to clients."),
    "cairn_topic_bytes_in_total": Metric(
        "counter", TRAFFIC, "Bytes of record batches produced to a topic; beyond 1,000 topics as (others).", ("topic",)
    ),
    "cairn_topic_bytes_out_total": Metric(
        "counter", TRAFFIC, "Bytes of record batches fetched from a topic; beyond 1,000 topics as (others).", ("topic",)
    ),
    "kafka_topic_partition_current_offset": Metric(
        "gauge", TRAFFIC, "Visible end of a partition.", ("topic", "partition")
    ),
    "cairn_request_bytes_in_flight": Metric("gauge", TRAFFIC, "Bytes of requests without a response yet."),
    "cairn_request_object_bytes": Metric("gauge", TRAFFIC, "Memory that decoded requests may take (an estimate)."),
    "cairn_answer_bytes_unsent": Metric("gauge", TRAFFIC, "Bytes of responses that clients have not read."),
    "cairn_groups": Metric("gauge", GROUPS, "Groups by type and state.", ("type", "state")),
    "cairn_group_lag": Metric("gauge", GROUPS, _LAG, ("group", "topic", "partition")),
    "kafka_consumergroup_lag": Metric(
        "gauge",
        GROUPS,
        "The same, under the name that exporters for Kafka use.",
        ("consumergroup", "topic", "partition"),
    ),
    "cairn_group_lag_omitted": Metric("gauge", GROUPS, "Partitions of groups beyond the 10,000 whose lag is shown."),
    "cairn_journal_end_bytes": Metric("gauge", STORAGE, "End position of a journal.", ("journal",)),
    "cairn_journal_size_bytes": Metric("gauge", STORAGE, "Bytes a journal holds on disk.", ("journal",)),
    "cairn_split_lag_bytes": Metric("gauge", STORAGE, "Journal bytes not yet in queue logs.", ("journal",)),
    "cairn_journal_stopped": Metric("gauge", STORAGE, "1 if a journal has stopped after a fault.", ("journal",)),
    "cairn_journal_damaged": Metric(
        "gauge", STORAGE, "1 if a journal does not read back after the checkpoint.", ("journal",)
    ),
    "cairn_journal_cut_bytes_total": Metric(
        "counter", STORAGE, "Bytes that were never synced and were cut off at the start.", ("journal",)
    ),
    "cairn_replay_bytes": Metric("gauge", STORAGE, "Bytes to replay if the broker were killed now.", ("journal",)),
    "cairn_flush_seconds": Metric("histogram", STORAGE, "Duration of journal syncs.", ("journal",)),
    "cairn_checkpoint_age_seconds": Metric("gauge", STORAGE, "Age of the last checkpoint."),
    "cairn_checkpoint_seconds": Metric("gauge", STORAGE, "Duration of the last checkpoint."),
    "cairn_recovery_seconds": Metric("gauge", STORAGE, "Duration of the recovery at the last start."),
    "cairn_tail_reads_total": Metric("counter", STORAGE, "Reads served from the journals."),
    "cairn_cold_reads_total": Metric("counter", STORAGE, "Reads that had to wait for the disk."),
    "cairn_damages_total": Metric("counter", STORAGE, "Places where stored bytes did not read back."),
    "cairn_disk_free_bytes": Metric("gauge", STORAGE, "Free bytes of the disk with a directory.", ("directory",)),
    "cairn_disk_size_bytes": Metric("gauge", STORAGE, "Size of that disk.", ("directory",)),
    "cairn_compaction_passes_total": Metric("counter", STORAGE, "Compaction passes over a queue."),
    "cairn_compaction_read_bytes_total": Metric("counter", STORAGE, "Bytes of queue logs that were compacted."),
    "cairn_compaction_written_bytes_total": Metric("counter", STORAGE, "Bytes that compaction kept."),
    "cairn_compaction_dirty_ratio": Metric("gauge", STORAGE, "Dirty share of the dirtiest queue that waits."),
    "process_cpu_seconds_total": Metric("counter", PROCESS, "CPU time of the broker process."),
    "process_resident_memory_bytes": Metric("gauge", PROCESS, "Resident memory of the broker process."),
    "process_virtual_memory_bytes": Metric("gauge", PROCESS, "Virtual memory of the broker process."),
    "process_open_fds": Metric("gauge", PROCESS, "Open files of the broker process."),
    "process_max_fds": Metric("gauge", PROCESS, "Open files that the system allows it."),
    "process_start_time_seconds": Metric("gauge", PROCESS, "Start of the broker process, in seconds since 1970."),
    "cairn_splitter_cpu_seconds_total": Metric("counter", PROCESS, "CPU time of the splitter process that runs now."),
    "cairn_splitter_resident_memory_bytes": Metric("gauge", PROCESS, "Resident memory of the splitter process."),
    "cairn_splitter_restarts_total": Metric("counter", PROCESS, "Times the splitter was started again."),
}
