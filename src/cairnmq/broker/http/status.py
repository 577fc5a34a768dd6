"""What people and monitoring see: the JSON behind the status page, and /metrics. Reads only.

A broker may hold 100,000 queues: whatever walks over them lets the event loop breathe after every topic, and within
a large one.
"""

from __future__ import annotations

import asyncio
import os
import sys
from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from cairnmq import __version__, kernels
from cairnmq.broker.http import cluster_status, group_status, message_status
from cairnmq.broker.http.chunked import slices
from cairnmq.broker.http.process_figures import boot_time, open_files, open_files_max, read_figures
from cairnmq.broker.http.queue_size_cache import Sizes
from cairnmq.broker.http.traffic import STEP_SECONDS, Totals, Traffic
from cairnmq.broker.metrics import Exposition, Histogram, Sample
from cairnmq.settings.definition import ConfigSource
from cairnmq.settings.topic import describe_topic
from cairnmq.wire.apis import APIS

if TYPE_CHECKING:
    from cairnmq.broker.context import Context

Json: TypeAlias = dict[str, Any]


class Status:
    """Recovery runs, then the broker serves, then it drains; it is ready only while it serves."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._ctx: Context | None = None
        self._draining = False
        self._clock = clock
        self._started = clock()
        self._sizes = Sizes(clock)
        self.traffic = Traffic(clock, self._totals)

    def serve(self, ctx: Context) -> None:
        """Recovery is done."""
        assert self._ctx is None, "a broker serves once"
        self._ctx = ctx

    def drain(self) -> None:
        assert self._ctx is not None, "nothing is served that could end"
        self._draining = True

    def _totals(self) -> Totals:
        return (0, 0) if self._ctx is None else (self._ctx.metrics.bytes_in, self._ctx.metrics.bytes_out)

    def problems(self) -> list[str]:
        """Why the broker is not ready; empty if it is."""
        if self._ctx is None:
            return ["recovery in progress"]
        stopping = ["broker is shutting down"] if self._draining else []
        trouble = self._ctx.catalog.trouble
        return [*stopping, *([f"metadata: {trouble}"] if trouble else []), *self._ctx.store.stats().reasons]

    async def overview(self) -> Json:
        return {
            "broker": self.broker(),
            "topics": await self.topics(),
            "groups": await self.groups(),
            **self.storage(),
            **({} if (cluster := self.cluster()) is None else {"cluster": cluster}),
        }

    def cluster(self) -> Json | None:
        """Brokers and journals; None on one node."""
        return None if self._ctx is None else cluster_status.cluster(self._ctx)

    def broker(self) -> Json:
        problems = self.problems()
        described: Json = {
            "version": __version__,
            "uptime_seconds": round(self._clock() - self._started, 3),
            "ready": not problems,
            "reasons": problems,
        }
        if self._ctx is not None:
            node, metrics = self._ctx.node, self._ctx.metrics
            rate_in, rate_out = self.traffic.rates()
            history = self.traffic.history()
            described |= {
                "cluster_id": node.cluster_id,
                "node_id": node.node_id,
                "bootstrap": str(node.bootstrap),
                "rack": node.rack,
                "epoch": max(self._ctx.store.epochs.values()),
                "connections": metrics.connections,
                "bytes_in": metrics.bytes_in,
                "bytes_out": metrics.bytes_out,
                "bytes_in_per_second": round(rate_in, 1),
                "bytes_out_per_second": round(rate_out, 1),
                "history": {
                    "step_seconds": STEP_SECONDS,
                    "bytes_in_per_second": [round(step[0]) for step in history],
                    "bytes_out_per_second": [round(step[1]) for step in history],
                },
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
        ctx = self._ctx
        if ctx is None:
            return []
        found = []
        sizes = await self._sizes.current(ctx.store, ctx.log_sizes)
        for name, topic in sorted(ctx.catalog.image.topics.items()):
            messages = size = written = here = 0
            for part in slices(topic.queues()):
                for _, queue_id in part:
                    queue = ctx.store.queues.get(queue_id)
                    if queue is not None:
                        here += 1
                        messages += queue.high_watermark - queue.log_start
                        written += queue.high_watermark
                    size += sizes.get(queue_id, 0)
                await asyncio.sleep(0)
            found.append(
                {
                    "name": name,
                    "partitions": topic.count,
                    "partitions_here": here,
                    "messages": messages,
                    "written": written,
                    "bytes": size,
                    "configs": topic.configs,
                }
            )
        return found

    async def topic(self, name: str) -> Json | None:
        """One topic with its partitions."""
        ctx = self._ctx
        topic = None if ctx is None else ctx.catalog.image.topic(name)
        if ctx is None or topic is None:
            return None
        rows: list[Json] = []
        sizes = await self._sizes.current(ctx.store, ctx.log_sizes)
        for part in slices(topic.queues()):
            for partition, queue_id in part:
                queue = ctx.store.queues.get(queue_id)
                if queue is not None:
                    rows.append(
                        {
                            "partition": partition,
                            "queue_id": queue_id,
                            "start": queue.log_start,
                            "visible": queue.high_watermark,
                            "end": queue.end,
                            "bytes": sizes.get(queue_id, 0),
                        }
                    )
            await asyncio.sleep(0)
        if ctx.cluster_report is not None:
            rows = await cluster_status.with_leaders(ctx, topic, rows)
        return {
            "name": name,
            "id": urlsafe_b64encode(topic.topic_id).rstrip(b"=").decode(),
            "configs": topic.configs,
            "partitions": rows,
        }

    def topic_settings(self, name: str) -> list[Json] | None:
        """Every setting of a topic; `own` are those that were set for it."""
        ctx = self._ctx
        topic = None if ctx is None else ctx.catalog.image.topic(name)
        if ctx is None or topic is None:
            return None
        return [
            {
                "name": entry.name,
                "value": entry.value,
                "own": entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG,
                "doc": entry.doc,
            }
            for entry in describe_topic(topic.configs, ctx.config)
        ]

    async def topic_groups(self, name: str) -> list[Json] | None:
        """The groups that have committed offsets in a topic, with their lag there."""
        ctx = self._of_groups
        topic = None if ctx is None else ctx.catalog.image.topic(name)
        return None if ctx is None or topic is None else await group_status.groups_of_topic(ctx, topic)

    async def messages(self, name: str, partition: int | None, limit: int) -> Json | None:
        """The newest messages of a topic."""
        ctx = self._ctx
        topic = None if ctx is None else ctx.catalog.image.topic(name)
        return None if ctx is None or topic is None else await message_status.messages(ctx, topic, partition, limit)

    async def groups(self) -> list[Json]:
        """Every group with its state, members and lag."""
        return await group_status.groups(ctx) if (ctx := self._of_groups) is not None else []

    async def group(self, name: str) -> Json | None:
        """One group with its members and all its positions."""
        return await group_status.group(ctx, name) if (ctx := self._of_groups) is not None else None

    @property
    def _of_groups(self) -> Context | None:
        """None if nothing is known of any: offsets that are too old would mislead more than none."""
        return self._ctx if self._ctx is not None and self._ctx.coordinators.loaded else None

    def storage(self) -> Json:
        if self._ctx is None:
            return {"journals": [], "splitter": {"state": "recovery in progress"}, "damages": []}
        stats = self._ctx.store.stats()
        flush = Histogram()
        for each in stats.journals:
            flush.add(each.sync_seconds)
        return {
            "losses": self._ctx.store.losses,
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
        out.value("cairn_ready", 0 if self.problems() else 1)
        out.series("cairn_build_info", [Sample(1, _build())])
        ctx = self._ctx
        _process_metrics(out, None if ctx is None else ctx.store.stats().splitter_pid)
        if ctx is not None:
            _connection_metrics(ctx, out)
            _topic_metrics(ctx, out)
            cluster_status.cluster_metrics(ctx, out)
            _storage_metrics(ctx, out)
            await _disk_metrics(ctx, out)
            if self._of_groups is not None:
                await group_status.group_metrics(ctx, out)
            await _queue_metrics(ctx, out)
        return out.text()


def _build() -> dict[str, str]:
    return {"version": __version__, "kernels": kernels.summary(), "python": sys.version.split()[0]}


def _process_metrics(out: Exposition, splitter_pid: int | None) -> None:
    ours = read_figures(os.getpid())
    assert ours is not None, "the broker's own process has figures"
    out.value("process_cpu_seconds_total", ours.cpu_seconds)
    out.value("process_resident_memory_bytes", ours.resident_bytes)
    out.value("process_virtual_memory_bytes", ours.virtual_bytes)
    out.value("process_start_time_seconds", boot_time() + ours.started)
    out.value("process_open_fds", open_files())
    out.value("process_max_fds", open_files_max())
    splitter = None if splitter_pid is None else read_figures(splitter_pid)
    if splitter is not None:
        out.value("cairn_splitter_cpu_seconds_total", splitter.cpu_seconds)
        out.value("cairn_splitter_resident_memory_bytes", splitter.resident_bytes)


def _connection_metrics(ctx: Context, out: Exposition) -> None:
    metrics = ctx.metrics
    out.histogram(
        "cairn_request_seconds",
        [({"api": APIS[key].name}, histogram) for key, histogram in sorted(metrics.requests.items())],
    )
    out.value("cairn_bytes_in_total", metrics.bytes_in)
    out.value("cairn_bytes_out_total", metrics.bytes_out)
    out.value("cairn_connections", metrics.connections)
    out.value("cairn_connections_total", metrics.connections_total)
    out.value("cairn_connections_refused_total", metrics.refused)
    out.value("cairn_malformed_requests_total", metrics.malformed)
    out.value("cairn_request_bytes_in_flight", ctx.budget.used)
    out.value("cairn_request_object_bytes", ctx.objects.used)
    out.value("cairn_answer_bytes_unsent", ctx.answers.used)


def _topic_metrics(ctx: Context, out: Exposition) -> None:
    """At most `TOPICS_MAX` topics, so in one go."""
    ctx.metrics.topics.forget_unless(ctx.catalog.image.topic)
    rows = sorted(ctx.metrics.topics.counts.items())
    for place, name in enumerate(("cairn_topic_bytes_in_total", "cairn_topic_bytes_out_total")):
        out.series(name, [Sample(counts[place], {"topic": topic}) for topic, counts in rows])


async def _disk_metrics(ctx: Context, out: Exposition) -> None:
    """On a thread: a file system may not respond."""
    places = {"journal": ctx.store.journal_dir, "data": ctx.store.data_dir}
    found = {name: await asyncio.to_thread(os.statvfs, place) for name, place in places.items()}
    out.series(
        "cairn_disk_free_bytes",
        [Sample(disk.f_bavail * disk.f_frsize, {"directory": name}) for name, disk in found.items()],
    )
    out.series(
        "cairn_disk_size_bytes",
        [Sample(disk.f_blocks * disk.f_frsize, {"directory": name}) for name, disk in found.items()],
    )


def _storage_metrics(ctx: Context, out: Exposition) -> None:
    stats = ctx.store.stats()
    rows = [({"journal": str(each.number)}, each) for each in stats.journals]
    out.series("cairn_journal_end_bytes", [Sample(each.end, labels) for labels, each in rows])
    out.series("cairn_journal_size_bytes", [Sample(each.size, labels) for labels, each in rows])
    out.series("cairn_split_lag_bytes", [Sample(each.split_lag, labels) for labels, each in rows])
    out.series("cairn_journal_stopped", [Sample(1 if each.stopped else 0, labels) for labels, each in rows])
    out.series("cairn_journal_damaged", [Sample(1 if each.damaged else 0, labels) for labels, each in rows])
    out.series("cairn_journal_cut_bytes_total", [Sample(each.cut_bytes, labels) for labels, each in rows])
    out.series("cairn_replay_bytes", [Sample(each.replay_bytes, labels) for labels, each in rows])
    out.value("cairn_checkpoint_age_seconds", stats.checkpoint_age_seconds)
    out.value("cairn_recovery_seconds", stats.recovery_seconds)
    out.value("cairn_tail_reads_total", stats.tail_reads)
    out.value("cairn_cold_reads_total", stats.cold_reads)
    out.value("cairn_damages_total", stats.damage_count)
    out.value("cairn_splitter_restarts_total", stats.splitter_restarts)
    out.value("cairn_checkpoint_seconds", stats.checkpoint_seconds)
    done = stats.compaction
    out.value("cairn_compaction_passes_total", done.passes)
    out.value("cairn_compaction_read_bytes_total", done.read_bytes)
    out.value("cairn_compaction_written_bytes_total", done.written_bytes)
    out.value("cairn_compaction_dirty_ratio", done.dirty_ratio)
    out.histogram("cairn_flush_seconds", [(labels, each.sync_seconds) for labels, each in rows])


async def _queue_metrics(ctx: Context, out: Exposition) -> None:
    """Of partitions that this broker leads: a sum over the brokers of a cluster counts each once."""
    metric = "kafka_topic_partition_current_offset"
    led = ctx.leadership.led
    out.begin(metric)
    for name, topic in sorted(ctx.catalog.image.topics.items()):
        for part in slices(topic.queues()):
            queues = ((partition, ctx.store.queues.get(queue_id)) for partition, queue_id in part)
            rows = (
                (partition, queue.high_watermark)
                for partition, queue in queues
                if queue is not None and not queue.cut_short and queue.journal in led
            )
            out.partitions(metric, {"topic": name}, rows)
            await asyncio.sleep(0)
