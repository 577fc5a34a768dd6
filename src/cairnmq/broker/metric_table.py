"""Every metric that /metrics may show. The Grafana dashboard, the alert rules and docs/monitor.md are made from it."""

from __future__ import annotations

from msgspec import Struct


class Metric(Struct, frozen=True):
    """`section` is where the dashboard and the page show it. Its unit is in its name."""

    kind: str
    section: str
    help: str
    labels: tuple[str, ...] = ()


BROKER, CLUSTER, TRAFFIC, STORAGE = "Broker", "Cluster", "Traffic", "Storage"
GROUPS, PROCESS = "Consumer groups", "Processes"
SECTIONS = (BROKER, TRAFFIC, GROUPS, CLUSTER, STORAGE, PROCESS)

_LAG = "Records between a group's committed offset and the end of the partition."

METRICS: dict[str, Metric] = {
    "cairn_ready": Metric(
        "gauge", BROKER, "1 when requests are served, 0 while recovery runs or a journal has stopped."
    ),
    "cairn_build_info": Metric(
        "gauge",
        BROKER,
        "Always 1; version, kernels and Python version are in the labels.",
        ("version", "kernels", "python"),
    ),
    "cairn_connections": Metric("gauge", BROKER, "Open client connections."),
    "cairn_connections_total": Metric("counter", BROKER, "Client connections accepted."),
    "cairn_connections_refused_total": Metric(
        "counter", BROKER, "Client connections refused because of max.connections."
    ),
    "cairn_malformed_requests_total": Metric("counter", BROKER, "Requests that could not be decoded."),
    "cairn_request_seconds": Metric(
        "histogram",
        BROKER,
        "Time from the last byte of a request until its response is passed to the socket.",
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
        "gauge", TRAFFIC, "High watermark of a partition.", ("topic", "partition")
    ),
    "cairn_request_bytes_in_flight": Metric("gauge", TRAFFIC, "Bytes of requests in flight."),
    "cairn_request_object_bytes": Metric("gauge", TRAFFIC, "Estimated memory of decoded requests in flight."),
    "cairn_answer_bytes_unsent": Metric("gauge", TRAFFIC, "Bytes of responses that clients have not read yet."),
    "cairn_groups": Metric("gauge", GROUPS, "Groups by type and state.", ("type", "state")),
    "cairn_group_lag": Metric("gauge", GROUPS, _LAG, ("group", "topic", "partition")),
    "kafka_consumergroup_lag": Metric(
        "gauge",
        GROUPS,
        "Same as cairn_group_lag, under the name that Kafka exporters use.",
        ("consumergroup", "topic", "partition"),
    ),
    "cairn_group_lag_omitted": Metric("gauge", GROUPS, "Group partitions whose lag is not exported (limit 10,000)."),
    "cairn_led_journals": Metric("gauge", CLUSTER, "Journals that this broker leads."),
    "cairn_offline_journals": Metric("gauge", CLUSTER, "Journals of the cluster that have no leader."),
    "cairn_isr_size": Metric("gauge", CLUSTER, "In-sync replicas of a journal that this broker leads.", ("journal",)),
    "cairn_out_of_sync_replicas": Metric(
        "gauge", CLUSTER, "Replicas that are not in sync, of a journal that this broker leads.", ("journal",)
    ),
    "cairn_replica_lag_bytes": Metric(
        "gauge", CLUSTER, "Bytes that a replica lacks of a journal that this broker leads.", ("journal", "replica")
    ),
    "cairn_replica_lag_seconds": Metric(
        "gauge", CLUSTER, "Time since a replica had all of a journal that this broker leads.", ("journal", "replica")
    ),
    "cairn_follower_reads_bytes_total": Metric(
        "counter", CLUSTER, "Bytes of record batches that consumers read here while another broker led the partition."
    ),
    "cairn_follower_reads_sent_back_total": Metric(
        "counter", CLUSTER, "Partitions of consumers that this follower sent back to their leader."
    ),
    "cairn_follower_reads_sent_on_total": Metric(
        "counter", CLUSTER, "Partitions of consumers that this leader sent to a follower in their rack."
    ),
    "cairn_install_progress_ratio": Metric(
        "gauge", CLUSTER, "Share of the records that are there, of a journal that is taken over.", ("journal",)
    ),
    "cairn_replica_backlog_ratio": Metric(
        "gauge",
        CLUSTER,
        "What waits for the splitter of a replica, of the most that may, in a journal that this broker leads. From 0.9 "
        "on producers wait for an in-sync replica.",
        ("journal", "replica"),
    ),
    "cairn_replica_free_bytes": Metric(
        "gauge",
        CLUSTER,
        "Room on the journal disk of a replica of a journal that this broker leads.",
        ("journal", "replica"),
    ),
    "cairn_replica_slows_producers": Metric(
        "gauge",
        CLUSTER,
        "Whether producers of a journal that this broker leads wait for a replica with too little room.",
        ("journal", "replica"),
    ),
    "cairn_journal_end_bytes": Metric("gauge", STORAGE, "End position of a journal.", ("journal",)),
    "cairn_journal_size_bytes": Metric("gauge", STORAGE, "Size of a journal on disk.", ("journal",)),
    "cairn_split_lag_bytes": Metric(
        "gauge", STORAGE, "Journal bytes that are not split into queue logs yet.", ("journal",)
    ),
    "cairn_journal_stopped": Metric("gauge", STORAGE, "1 if a journal has stopped after a fault.", ("journal",)),
    "cairn_journal_damaged": Metric("gauge", STORAGE, "1 if a journal is damaged after the checkpoint.", ("journal",)),
    "cairn_journal_cut_bytes_total": Metric(
        "counter", STORAGE, "Unsynced, damaged bytes that were truncated at startup.", ("journal",)
    ),
    "cairn_replay_bytes": Metric(
        "gauge", STORAGE, "Journal bytes that a restart would replay after a crash.", ("journal",)
    ),
    "cairn_flush_seconds": Metric("histogram", STORAGE, "Duration of journal syncs.", ("journal",)),
    "cairn_checkpoint_age_seconds": Metric("gauge", STORAGE, "Age of the last checkpoint."),
    "cairn_checkpoint_seconds": Metric("gauge", STORAGE, "Duration of the last checkpoint."),
    "cairn_recovery_seconds": Metric("gauge", STORAGE, "Duration of recovery at startup."),
    "cairn_tail_reads_total": Metric("counter", STORAGE, "Reads served from the journals."),
    "cairn_cold_reads_total": Metric(
        "counter", STORAGE, "Reads that were not in the page cache and waited for the disk."
    ),
    "cairn_damages_total": Metric("counter", STORAGE, "Damaged places found in stored files."),
    "cairn_disk_free_bytes": Metric("gauge", STORAGE, "Free bytes on the disk of a directory.", ("directory",)),
    "cairn_disk_size_bytes": Metric("gauge", STORAGE, "Size of the disk of a directory.", ("directory",)),
    "cairn_compaction_passes_total": Metric("counter", STORAGE, "Compaction passes over a partition."),
    "cairn_compaction_read_bytes_total": Metric("counter", STORAGE, "Bytes read by compaction."),
    "cairn_compaction_written_bytes_total": Metric("counter", STORAGE, "Bytes written by compaction."),
    "cairn_compaction_dirty_ratio": Metric(
        "gauge", STORAGE, "Largest dirty ratio of the partitions that wait for compaction."
    ),
    "process_cpu_seconds_total": Metric("counter", PROCESS, "CPU time of the broker process."),
    "process_resident_memory_bytes": Metric("gauge", PROCESS, "Resident memory of the broker process."),
    "process_virtual_memory_bytes": Metric("gauge", PROCESS, "Virtual memory of the broker process."),
    "process_open_fds": Metric("gauge", PROCESS, "Open files of the broker process."),
    "process_max_fds": Metric("gauge", PROCESS, "Maximum number of open files of the broker process."),
    "process_start_time_seconds": Metric("gauge", PROCESS, "Start of the broker process, in seconds since 1970."),
    "cairn_splitter_cpu_seconds_total": Metric("counter", PROCESS, "CPU time of the current splitter process."),
    "cairn_splitter_resident_memory_bytes": Metric("gauge", PROCESS, "Resident memory of the splitter process."),
    "cairn_splitter_restarts_total": Metric("counter", PROCESS, "Restarts of the splitter process."),
}
