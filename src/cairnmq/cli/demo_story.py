"""What `cairn demo --brokers 3` says: who leads what, and after a death how long nothing was delivered. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

RESTART_SECONDS = 20.0


class Gap(Struct, frozen=True, gc=False):
    """A time in which no record of a partition was acknowledged."""

    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


class Sample(Struct, frozen=True):
    """The demo at one moment. By partition: leader (-1: none), in-sync replicas, last acknowledgement, long gaps."""

    now: float
    pids: Mapping[int, int]  # of brokers that run
    leaders: Mapping[int, int]
    in_sync: Mapping[int, int]
    acked_at: Mapping[int, float]
    gaps: Mapping[int, Sequence[Gap]]
    acked: int
    read: int
    wrong: int = 0  # records that the consumer missed, or read twice


class _Death(Struct, frozen=True):
    broker: int
    at: float
    led: tuple[int, ...]


class Story:
    """Sentences about brokers that come and go. `said` is called often, `line` once a second."""

    def __init__(self, brokers: Iterable[int], replicas: int, *, keys: bool = False) -> None:
        self._brokers = sorted(brokers)
        self._replicas = replicas
        self._keys = keys  # somebody can press one
        self._deaths: dict[int, _Death] = {}
        self._standing: list[_Death] = []  # whose partitions take no records yet
        self._returned: set[int] = set()  # and not in sync everywhere yet
        self._invited = False
        self._before: Sample | None = None  # at the last line
        self._leaders: Mapping[int, int] = {}

    def due(self, now: float) -> list[int]:
        """Brokers that have been dead for long enough."""
        return [broker for broker, death in self._deaths.items() if now - death.at >= RESTART_SECONDS]

    @property
    def dead(self) -> list[int]:
        return sorted(self._deaths)

    def said(self, sample: Sample) -> list[str]:
        """What has happened since the last call."""
        lines = []
        for broker in self._brokers:
            if broker in sample.pids and broker in self._deaths:
                del self._deaths[broker]
                self._returned.add(broker)
                lines.append(f"broker {broker} is back (pid {sample.pids[broker]}) and copies what it missed")
            elif broker not in sample.pids and broker not in self._deaths:
                led = tuple(sorted(part for part, leader in self._leaders.items() if leader == broker))
                self._deaths[broker] = death = _Death(broker, sample.now, led)
                self._standing += [death] if led else []
                self._returned.discard(broker)
                lines.append(self._died(broker, led))
        for death in [death for death in self._standing if _taken_over(death, sample)]:
            self._standing.remove(death)
            lines.append(_takeover(death, sample))
        if self._returned and self._whole(sample):
            lines.append(f"all partitions have {self._replicas} replicas in sync again")
            self._returned.clear()
            self._invited = False
        if not self._invited and self._whole(sample):
            self._invited = True
            lines.append(self._invitation(sample))
        self._leaders = sample.leaders
        return lines

    def line(self, sample: Sample) -> str:
        """Who leads what, and what was delivered since the last line."""
        before, self._before = self._before, sample
        seconds = sample.now - before.now if before is not None else 0.0
        acked = (sample.acked - before.acked) / seconds if before is not None and seconds else 0.0
        read = (sample.read - before.read) / seconds if before is not None and seconds else 0.0
        leads = " | ".join(self._leads(broker, sample) for broker in self._brokers)
        wrong = f", {sample.wrong} LOST OR DOUBLE" if sample.wrong else ""
        return f"{leads} | written {acked:4.0f}/s, read {read:4.0f}/s{wrong}"

    def _leads(self, broker: int, sample: Sample) -> str:
        if broker not in sample.pids:
            return f"broker {broker} is dead"
        led = [str(part) for part, leader in sorted(sample.leaders.items()) if leader == broker]
        return f"broker {broker} leads {' '.join(led) or '-'}"

    def _died(self, broker: int, led: Sequence[int]) -> str:
        what = f"it led {_partitions(led)}" if led else "it led nothing"
        when = f"in {RESTART_SECONDS:.0f} s" + (", or at once when you press Enter" if self._keys else "")
        return f"broker {broker} is gone; {what}. It starts again {when}"

    def _whole(self, sample: Sample) -> bool:
        counts = sample.in_sync.values()
        return bool(counts) and not self._deaths and all(count >= self._replicas for count in counts)

    def _invitation(self, sample: Sample) -> str:
        """The broker that leads most is the one worth killing."""
        leaders = list(sample.leaders.values())
        broker = max(sample.pids, key=lambda number: (leaders.count(number), -number))
        return f"now kill one, for example broker {broker}:  kill -9 {sample.pids[broker]}"


def _taken_over(death: _Death, sample: Sample) -> bool:
    """Every partition that it led has a leader that runs, and takes records again."""
    return all(
        sample.acked_at.get(part, 0.0) > death.at and sample.leaders.get(part, -1) in sample.pids for part in death.led
    )


def _takeover(death: _Death, sample: Sample) -> str:
    gaps = [gap.seconds for part in death.led for gap in sample.gaps.get(part, ()) if gap.end >= death.at]
    now = ", ".join(f"{part} by broker {sample.leaders[part]}" for part in death.led)
    stood = f"stood still for {max(gaps):.1f} s" if gaps else "did not stand still"
    others = "; the other partitions went on" if len(sample.leaders) > len(death.led) else ""
    return f"{_partitions(death.led)} {stood}{others}. Led now: {now}"


def _partitions(numbers: Sequence[int]) -> str:
    return f"partition{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
