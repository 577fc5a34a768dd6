"""What `cairn import` reads: log directories of Apache Kafka."""

from __future__ import annotations

from cairnmq.storage.kafka_import.kafka_directory import (
    CLUSTER_METADATA,
    CONSUMER_OFFSETS,
    INTERNAL,
    KafkaDirectory,
    KafkaPartition,
    by_topic,
    open_directory,
)
from cairnmq.storage.kafka_import.kafka_log import KafkaLog, Unimportable

__all__ = [
    "CLUSTER_METADATA",
    "CONSUMER_OFFSETS",
    "INTERNAL",
    "KafkaDirectory",
    "KafkaLog",
    "KafkaPartition",
    "Unimportable",
    "by_topic",
    "open_directory",
]
