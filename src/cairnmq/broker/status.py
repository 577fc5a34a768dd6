"""What people and monitoring see: the JSON behind the status page, and /metrics. Reads only.

A broker may hold 100,000 queues: whatever walks over them lets the event loop breathe after every topic, and within
a large one.
"""

from __future__ import annotations

import asyncio
import functools
from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from cairnmq.broker import group_status
from cairnmq.broker.metrics import Exposition, Histogram, Sample
from cairnmq.broker.sizes import Sizes
from cairnmq.broker.slices import slices
from cairnmq.storage.loss import accepted
from cairnmq.types import host_port
from cairnmq.wire.apis import APIS

if TYPE_CHECKING:
    from cairnmq.broker.context import Context

Json: TypeAlias = dict[str, Any]


@functools.cache
def _version() -> str:
    from importlib.metadata import version  # 10 ms that no start should pay

    return version("cairnmq")


class Status:
    """`ctx` is set when recovery is done; until then the broker lives but is not ready."""

    def __init__(self, clock: Callable[[], float], data: str) -> None:
        self.ctx: Context | None = None
        self.draining = False
        self._clock = clock
        self._started = clock()
        self._sizes = Sizes(data, clock)

    def problems(self) -> list[str]:
        """Why the broker is not ready; empty if it is."""
        if self.ctx is None:
            return ["recovery is running"]
        return [*(["the broker is stopping"] if self.draining else []), *self.ctx.store.stats().reasons]

    async def overview(self) -> Json:
        return {
            "broker": self.broker(),
            "topics": await self.topics(),
            "groups": await self.groups(),
            **self.storage(),
        }

    def broker(self) -> Json:
        problems = self.problems()
        described: Json = {
            "version": _version(),
            "uptime_seconds": round(self._clock() - self._started, 3),
            "ready": not problems,
            "reasons": problems,
        }
        if self.ctx is not None:
            node, metrics = self.ctx.node, self.ctx.metrics
            described |= {
                "cluster_id": node.cluster_id,
                "node_id": node.node_id,
                "bootstrap": host_port(node.host, node.port),
                "rack": node.rack,
                "epoch": self.ctx.store.epoch,
                "connections": metrics.connections,
                "bytes_in": metrics.bytes_in,
                "bytes_out": metrics.bytes_out,
                "requests": {
                    APIS[key].name: {
                        "count": histogram.count,
                        "p50_ms": histogram.quantile(0.5) * 1000,
                        "p99_ms": histogram.quantile(0.99) * 1000,
                    }
                    for key, histogram in sorted(metrics.requests.items())
                    if histogram.count
                },
            }
        return described

    async def topics(self) -> list[Json]:
        ctx = self.ctx
        if ctx is None:
            return []
        found = []
        sizes = await self._sizes.current()
        for name, topic in sorted(ctx.catalog.image.topics.items()):
            messages = size = 0
            for part in slices(topic.queues()):
                for partition, queue_id in part:
                    queue = ctx.store.queues.get(queue_id)
                    if queue is not None:
                        messages += queue.visible - queue.log_start
                    size += sizes.of_partition(name, partition)
                await asyncio.sleep(0)
            found.append(
                {
                    "name": name,
                    "partitions": topic.count,
                    "messages": messages,
                    "bytes": size,
                    "configs": topic.configs,
                }
            )
        return found

    async def topic(self, name: str) -> Json | None:
        """One topic with its partitions."""
        ctx = self.ctx
        topic = None if ctx is None else ctx.catalog.image.topic(name)
        if ctx is None or topic is None:
            return None
        rows = []
        sizes = await self._sizes.current()
        for part in slices(topic.queues()):
            for partition, queue_id in part:
                queue = ctx.store.queues.get(queue_id)
                if queue is not None:
                    rows.append(
                        {
                            "partition": partition,
                            "queue_id": queue_id,
                            "start": queue.log_start,
                            "visible": queue.visible,
                            "end": queue.end,
                            "bytes": sizes.of_partition(name, partition),
                        }
                    )
            await asyncio.sleep(0)
        return {
            "name": name,
            "id": urlsafe_b64encode(topic.topic_id).rstrip(b"=").decode(),
            "configs": topic.configs,
            "partitions": rows,
        }

    async def groups(self) -> list[Json]:
        """Every group with its state, members and lag."""
        return [] if self.ctx is None else await group_status.groups(self.ctx)

    async def group(self, name: str) -> Json | None:
        """One group with its members and all its positions."""
        return None if self.ctx is None else await group_status.group(self.ctx, name)

    def storage(self) -> Json:
        if self.ctx is None:
            return {"journals": [], "splitter": {"state": "waiting for recovery"}, "damages": []}
        stats = self.ctx.store.stats()
        flush = Histogram()
        for each in stats.journals:
            flush.add(each.sync_seconds)
        return {
            "losses": accepted(self.ctx.store.engine.keyed.items()),
            "journals": [
                {
                    "journal": each.number,
                    "end": each.end,
                    "synced": each.synced,
                    "split": each.split,
                    "checkpoint": each.checkpoint,
                    "bytes": each.size,
                    "unsplit_entries": each.unsplit_entries,
                    "stopped": each.stopped,
                }
                for each in stats.journals
            ],
            "damages": [
                {
                    "file": each.file,
                    "position": each.position,
                    "queue": each.queue,
                    "first_offset": each.first,
                    "end_offset": each.end,
                }
                for each in stats.damages
            ],
            "splitter": {
                "state": stats.splitter_trouble or ("running" if stats.split_enabled else "paused"),
                "pid": stats.splitter_pid,
                "restarts": stats.splitter_restarts,
                "lag_bytes": sum(each.split_lag for each in stats.journals),
                "replay_bytes": sum(each.replay_bytes for each in stats.journals),
                "checkpoint_age_seconds": round(stats.checkpoint_age_seconds, 3),
                "recovery_seconds": round(stats.recovery_seconds, 3),
                "flush_p50_ms": flush.quantile(0.5) * 1000,
                "flush_p99_ms": flush.quantile(0.99) * 1000,
            },
        }

    async def metrics(self) -> str:
        """All of /metrics. During recovery only what is known then."""
        out = Exposition()
        out.gauge("cairn_ready", "1 when requests are served, 0 while recovery runs or a journal has stopped.",
                  0 if self.problems() else 1)  # fmt: skip
        ctx = self.ctx
        if ctx is not None:
            _connection_metrics(ctx, out)
            _storage_metrics(ctx, out)
            await group_status.group_metrics(ctx, out)
            await _queue_metrics(ctx, out)
        return out.text()


def _connection_metrics(ctx: Context, out: Exposition) -> None:
    metrics = ctx.metrics
    out.histogram(
        "cairn_request_seconds",
        "Time from the last byte of a request to its answer being handed to the socket.",
        [({"api": APIS[key].name}, histogram) for key, histogram in sorted(metrics.requests.items())],
    )
    out.counter("cairn_bytes_in_total", "Bytes read from clients.", metrics.bytes_in)
    out.counter("cairn_bytes_out_total", "Bytes written to clients.", metrics.bytes_out)
    out.gauge("cairn_connections", "Open client connections.", metrics.connections)
    out.counter("cairn_connections_total", "Client connections accepted since the start.", metrics.connections_total)
    out.counter("cairn_connections_refused_total", "Connections over max.connections.", metrics.refused)
    out.counter("cairn_malformed_requests_total", "Requests that could not be read.", metrics.malformed)
    out.gauge("cairn_request_bytes_in_flight", "Bytes of requests not yet answered.", ctx.budget.used)
    out.gauge("cairn_request_object_bytes", "Memory that decoded requests may take (an estimate).", ctx.objects.used)
    out.gauge("cairn_answer_bytes_unsent", "Bytes of answers that clients have not taken.", ctx.answers.used)


def _storage_metrics(ctx: Context, out: Exposition) -> None:
    stats = ctx.store.stats()
    rows = [({"journal": str(each.number)}, each) for each in stats.journals]
    out.plain("cairn_journal_end_bytes", "gauge", "End position of a journal.",
              [Sample(each.end, labels) for labels, each in rows])  # fmt: skip
    out.plain("cairn_journal_size_bytes", "gauge", "Bytes a journal holds on disk.",
              [Sample(each.size, labels) for labels, each in rows])  # fmt: skip
    out.plain("cairn_split_lag_bytes", "gauge", "Journal bytes not yet in queue logs.",
              [Sample(each.split_lag, labels) for labels, each in rows])  # fmt: skip
    out.plain("cairn_journal_stopped", "gauge", "1 if a journal has stopped after a fault.",
              [Sample(1 if each.stopped else 0, labels) for labels, each in rows])  # fmt: skip
    out.plain("cairn_replay_bytes", "gauge", "Bytes to replay if the broker were killed now.",
              [Sample(each.replay_bytes, labels) for labels, each in rows])  # fmt: skip
    out.gauge("cairn_checkpoint_age_seconds", "Age of the last checkpoint.", stats.checkpoint_age_seconds)
    out.gauge("cairn_recovery_seconds", "Duration of the recovery at the last start.", stats.recovery_seconds)
    out.counter("cairn_tail_reads_total", "Reads served from the journals.", stats.tail_reads)
    out.counter("cairn_cold_reads_total", "Reads that had to wait for the disk.", stats.cold_reads)
    out.counter("cairn_damages_total", "Places where stored bytes did not read back.", stats.damage_count)
    out.counter("cairn_splitter_restarts_total", "Times the splitter was started again.", stats.splitter_restarts)
    out.gauge("cairn_checkpoint_seconds", "Duration of the last checkpoint.", stats.checkpoint_seconds)
    done = stats.compaction
    out.counter("cairn_compaction_passes_total", "Passes of compaction over a queue.", done.passes)
    out.counter("cairn_compaction_read_bytes_total", "Bytes of queue logs that were compacted.", done.read_bytes)
    out.counter("cairn_compaction_written_bytes_total", "Bytes that were left of them.", done.written_bytes)
    out.gauge("cairn_compaction_dirty_ratio", "Dirty share of the dirtiest queue that waits.", done.dirty_ratio)
    out.histogram(
        "cairn_flush_seconds", "Duration of journal syncs.", [(labels, each.sync_seconds) for labels, each in rows]
    )


async def _queue_metrics(ctx: Context, out: Exposition) -> None:
    metric = "kafka_topic_partition_current_offset"
    out.begin(metric, "gauge", "Visible end of a partition.")
    for name, topic in sorted(ctx.catalog.image.topics.items()):
        for part in slices(topic.queues()):
            queues = ((partition, ctx.store.queues.get(queue_id)) for partition, queue_id in part)
            rows = ((partition, queue.visible) for partition, queue in queues if queue is not None)
            out.partitions(metric, {"topic": name}, rows)
            await asyncio.sleep(0)
