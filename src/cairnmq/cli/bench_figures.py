"""What a load came to: rates and percentiles, and the closing line of Kafka's own tool. Values in, text out."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

PERCENTS = (50.0, 95.0, 99.0, 99.9)
MEBIBYTE = 1024 * 1024


class Took(Struct, frozen=True, gc=False):
    """So many records took that long, in nanoseconds: those of one batch share their answer."""

    nanoseconds: int
    records: int = 1


class Figures(Struct, frozen=True):
    records: int
    bytes: int
    seconds: float
    mean_ms: float = 0.0
    max_ms: float = 0.0
    percentiles_ms: dict[str, float] = {}

    @property
    def records_per_second(self) -> float:
        return self.records / self.seconds if self.seconds else 0.0

    @property
    def mb_per_second(self) -> float:
        return self.bytes / 1e6 / self.seconds if self.seconds else 0.0


def percentiles(took: Sequence[Took]) -> dict[str, float]:
    """Milliseconds; each record counts, not each batch."""
    ordered = sorted(took, key=lambda each: each.nanoseconds)
    total = sum(each.records for each in ordered)
    found: dict[str, float] = {}
    wanted, passed = list(PERCENTS), 0
    for each in ordered:
        passed += each.records
        while wanted and passed > total * wanted[0] / 100 or wanted and passed == total:
            found[f"{wanted.pop(0):g}"] = each.nanoseconds / 1e6
    return found


def figures(record_bytes: int, seconds: float, took: Sequence[Took]) -> Figures:
    records = sum(each.records for each in took)
    spent = sum(each.nanoseconds * each.records for each in took)
    return Figures(
        records,
        records * record_bytes,
        seconds,
        spent / records / 1e6 if records else 0.0,
        max((each.nanoseconds for each in took), default=0) / 1e6,
        percentiles(took),
    )


def closing_line(of: Figures) -> str:
    """Word for word as `kafka-producer-perf-test` ends, so that scripts that read it go on working."""
    mebibytes = of.bytes / MEBIBYTE / of.seconds if of.seconds else 0.0
    shown = ", ".join(f"{round(of.percentiles_ms.get(f'{percent:g}', 0.0))} ms {percent:g}th" for percent in PERCENTS)
    return (
        f"{of.records} records sent, {of.records_per_second:f} records/sec ({mebibytes:.2f} MB/sec), "
        f"{of.mean_ms:.2f} ms avg latency, {of.max_ms:.2f} ms max latency, {shown}."
    )


def summary(of: Figures) -> dict[str, object]:
    """For --json."""
    told: dict[str, object] = {
        "records": of.records,
        "bytes": of.bytes,
        "seconds": round(of.seconds, 6),
        "records_per_second": round(of.records_per_second, 1),
        "mb_per_second": round(of.mb_per_second, 3),
    }
    if of.percentiles_ms:
        latency = {f"p{name}": round(value, 3) for name, value in of.percentiles_ms.items()}
        told["latency_ms"] = {"mean": round(of.mean_ms, 3), "max": round(of.max_ms, 3), **latency}
    return told
