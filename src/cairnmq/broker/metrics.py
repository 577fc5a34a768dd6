"""Counters and histograms, and their Prometheus text. Used on the loop thread only, so plain numbers suffice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from cairnmq.broker.metric_table import METRICS, Metric
from cairnmq.broker.topic_traffic import TopicTraffic

_BUCKETS = 26
_EXPORTED = range(4, _BUCKETS, 2)  # 16 us, 64 us, 256 us, 1 ms, 4 ms, ... 17 s


class Histogram:
    """Durations in buckets of powers of two microseconds: one bit_length finds the bucket (1 us .. 33 s)."""

    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * (_BUCKETS + 1)
        self.seconds = 0.0

    def observe(self, seconds: float) -> None:
        bucket = int(seconds * 1e6).bit_length()
        self.counts[bucket if bucket < _BUCKETS else _BUCKETS] += 1
        self.seconds += seconds

    def add(self, other: Histogram) -> None:
        """Take in what another histogram has seen."""
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        self.seconds += other.seconds

    @property
    def count(self) -> int:
        return sum(self.counts)

    def quantile(self, share: float) -> float:
        """The upper bound of the bucket in which `share` of all observations is reached; 0 without any."""
        wanted = share * self.count
        seen = 0
        for bucket, count in enumerate(self.counts):
            seen += count
            if count and seen >= wanted:
                return float(1 << bucket) / 1e6
        return 0.0

    def cumulative(self) -> list[tuple[float, int]]:
        """(upper bound in seconds, observations below it); always the same bounds, as Prometheus wants it."""
        rows: list[tuple[float, int]] = []
        seen = 0
        for bucket in range(_BUCKETS):
            seen += self.counts[bucket]
            if bucket in _EXPORTED:
                rows.append(((1 << bucket) / 1e6, seen))
        return rows


class Metrics:
    """What the connections count. `requests` is indexed by api key, `seconds` the clock that measures them."""

    __slots__ = ("requests", "bytes_in", "bytes_out", "topics", "connections", "connections_total", "refused",
                 "malformed", "seconds")  # fmt: skip

    def __init__(self, seconds: Callable[[], float]) -> None:
        self.seconds = seconds
        self.requests: dict[int, Histogram] = {}
        self.bytes_in = 0
        self.bytes_out = 0
        self.topics = TopicTraffic()
        self.connections = 0
        self.connections_total = 0
        self.refused = 0
        self.malformed = 0

    def request(self, key: int) -> Histogram:
        return self.requests.setdefault(key, Histogram())


class Sample(Struct, frozen=True, gc=False):
    """One line of output: labels and a number."""

    value: float
    labels: Mapping[str, str] = {}


_ESCAPES = str.maketrans({'"': '\\"', "\\": "\\\\", "\n": "\\n"})


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items()) + "}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1 << 53 else repr(value)


class Exposition:
    """Builds the text of /metrics; every name gets its HELP and TYPE, from the table, exactly once."""

    def __init__(self, table: Mapping[str, Metric] = METRICS) -> None:
        self._table = table
        self._lines: list[str] = []

    def begin(self, name: str) -> None:
        """Before `samples` or `partitions` of this name, which may come in pieces."""
        metric = self._table[name]
        self._lines.append(f"# HELP {name} {metric.help}")
        self._lines.append(f"# TYPE {name} {metric.kind}")

    def value(self, name: str, value: float) -> None:
        self.series(name, (Sample(value),))

    def series(self, name: str, samples: Iterable[Sample]) -> None:
        self.begin(name)
        self.samples(name, samples)

    def samples(self, name: str, samples: Iterable[Sample]) -> None:
        self._lines.extend(f"{name}{_labels(sample.labels)} {_number(sample.value)}" for sample in samples)

    def partitions(self, name: str, labels: Mapping[str, str], rows: Iterable[tuple[int, int]]) -> None:
        """A sample for each partition and number; the labels before `partition` are written out once."""
        start = _labels(labels)[:-1]
        self._lines.extend(f'{name}{start},partition="{partition}"}} {value}' for partition, value in rows)

    def histogram(self, name: str, series: Sequence[tuple[Mapping[str, str], Histogram]]) -> None:
        self.begin(name)
        for labels, histogram in series:
            for bound, seen in histogram.cumulative():
                self._lines.append(f"{name}_bucket{_labels({**labels, 'le': repr(bound)})} {seen}")
            count = histogram.count
            self._lines.append(f"{name}_bucket{_labels({**labels, 'le': '+Inf'})} {count}")
            self._lines.append(f"{name}_sum{_labels(labels)} {_number(histogram.seconds)}")
            self._lines.append(f"{name}_count{_labels(labels)} {count}")

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"
