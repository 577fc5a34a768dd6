"""Attacks on a broker that real producers, readers and groups use, on a disk that keeps what it was given."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from random import Random

from broker_process import Broker, fixed_port, wait_until
from chaos.attacker import Attacker
from chaos.power_cuts import settings
from chaos.promises import KILL, LINES
from chaos.world import GOES_ON_SECONDS, World
from faults.disks import fill, small_disk
from programs import require_program

ROUNDS = 20
JUDGED_EVERY = 5
MEGABYTES = 96
STRACE_SECONDS = 60.0
CLEAN = ("fdatasync", "fsync", "ftruncate", "rename", "unlink", "mkdir")
"""Calls that only files get."""
READS, WRITES = "pread64,preadv,preadv2", "writev"
"""The metadata's database reads so too, and sockets are written so too: these fail for single files."""
FILES_MAX = 100


class Siege(Attacker):
    """One broker with producers of every line that live through everything."""

    def __init__(self, directory: Path, seed: int, tally: Counter[str], *, data: Path | None = None) -> None:
        rng = Random(seed)
        broker = Broker(directory / "broker", port=fixed_port(), http=False, settings=settings(rng))
        super().__init__(broker, rng, tally)
        if data is not None:
            self.broker.data = data
        self.broker.journal_dir = self.broker.data.parent / "journals"
        self.world = World(self.broker, rng, LINES.values(), tally, steady=True)
        self.events = 0

    @contextmanager
    def besieged(self) -> Iterator[None]:
        """Afterwards all answers came, nothing is missing, and the broker stops cleanly."""
        try:
            self.broker.start()
            try:
                self.world.start(beside=True)
                self.world.goes_on()
                yield
                self.world.finish()
            finally:
                self.world.abandon()
        finally:
            self.broker.close()

    def expect_refusals(self) -> None:
        """Of writes, from now on."""
        for ledger in self.world.ledgers:
            ledger.refused = True

    def passed(self, event: str) -> None:
        """An event is over and the broker runs."""
        self.tally[event] += 1
        self.events += 1
        self.world.goes_on()
        if self.events % JUDGED_EVERY == 0:
            self.world.judge(KILL, time.monotonic())


def kills(directory: Path, seed: int, tally: Counter[str], rounds: int = ROUNDS) -> None:
    siege = Siege(directory, seed, tally)
    acts = {
        "kills of the tree": siege.kill_tree,
        "kills of the broker alone": siege.kill_broker,
        "kills of the splitter alone": siege.kill_splitter,
        "crash loops": siege.crash_loop,
        "kills in a clean stop": siege.kill_in_stop,
        "kills in a named phase": siege.kill_in_phase,
    }
    with siege.besieged():
        for _ in range(rounds):
            time.sleep(siege.rng.uniform(0.0, 0.6))
            name = siege.rng.choice([*acts])
            acts[name]()
            siege.passed(name)


def pauses(directory: Path, seed: int, tally: Counter[str], rounds: int = ROUNDS // 2) -> None:
    siege = Siege(directory, seed, tally)
    with siege.besieged():
        for _ in range(rounds):
            time.sleep(siege.rng.uniform(0.0, 0.6))
            splitter = siege.rng.random() < 0.5
            siege.pause(splitter=splitter)
            siege.passed("pauses of the splitter" if splitter else "pauses of the broker")


def full_disks(directory: Path, seed: int, tally: Counter[str], rounds: int = ROUNDS // 4) -> None:
    """Full at any moment; half of the time the broker is killed while it is, and starts on a disk with room."""
    with ExitStack() as stack:
        disk = stack.enter_context(small_disk(directory / "disk", MEGABYTES))
        siege = Siege(directory, seed, tally, data=disk / "data")
        siege.expect_refusals()
        stack.enter_context(siege.besieged())
        for _ in range(rounds):
            time.sleep(siege.rng.uniform(0.0, 1.0))
            junk = fill(disk)
            time.sleep(siege.rng.uniform(0.2, 2.0))
            killed = siege.rng.random() < 0.5
            if killed:
                siege.broker.kill_tree()
                siege.tally["kill -9"] += 1
                siege.tally["kill -9 on a full disk"] += 1
            junk.unlink()
            if killed:
                siege.world.verify()
                siege.broker.start()
            siege.passed("full disks")


def newest_files(broker: Broker) -> list[Path]:
    """Journal segments and queue logs as they are now; those that are written and read most."""
    assert broker.journal_dir is not None
    found: list[tuple[float, Path]] = []
    for directory in (broker.journal_dir, broker.data / "queues", broker.data / "packs"):
        for path in directory.rglob("*"):
            with suppress(FileNotFoundError):  # they come and go
                if path.is_file():
                    found.append((path.stat().st_mtime, path))
    return [path for _, path in sorted(found, reverse=True)[:FILES_MAX]]


@contextmanager
def failing(pid: int, call: str, when: str, told: Path, only: Iterable[Path] = ()) -> Iterator[None]:
    """Some such calls of a process and its threads fail with EIO; `told` is strace's account of them."""
    inject = ["-e", f"trace={call}", "-e", f"inject={call}:error=EIO:when={when}"]
    inject += [argument for path in only for argument in ("-P", str(path))]
    command = [require_program("strace"), "-f", "-o", str(told), "-p", str(pid), *inject]
    strace = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert strace.stderr is not None
    try:
        attached = strace.stderr.readline()
        assert "attached" in attached, attached
        yield
    finally:
        strace.send_signal(signal.SIGINT)
        strace.communicate(timeout=STRACE_SECONDS)


def io_errors(directory: Path, seed: int, tally: Counter[str], rounds: int = ROUNDS // 2) -> None:
    siege = Siege(directory, seed, tally)
    siege.expect_refusals()
    with siege.besieged():
        for _ in range(rounds):
            wait_until(lambda: siege.broker.splitter() is not None, GOES_ON_SECONDS, "a splitter")
            splitter = siege.broker.splitter()
            in_splitter = siege.rng.random() < 0.5
            pid = splitter.pid if in_splitter and splitter is not None else siege.broker.pid
            call = siege.rng.choice((*CLEAN, READS, READS, READS, WRITES, WRITES, WRITES))
            told = directory / "strace.log"
            only = newest_files(siege.broker) if call in (READS, WRITES) else []
            with failing(pid, call, siege.rng.choice(("1", "1+2", "3+3", "2+1")), told, only):
                time.sleep(siege.rng.uniform(0.3, 1.5) if not only else siege.rng.uniform(1.0, 4.0))
                if siege.rng.random() < 0.25:
                    siege.broker.kill_tree()
                    siege.tally["kill -9"] += 1
            failed = told.read_text().count("(INJECTED)")
            what = {READS: "reads", WRITES: "writes"}.get(call, "syncs, cuts and names")
            siege.tally[f"{what} that failed with EIO"] += failed
            if not siege.broker.running:
                siege.world.verify()
                siege.broker.start()
            siege.passed("times of EIO" if failed else "times of EIO that met no call")


def room(directory: Path) -> None:
    """After an episode that went well nobody needs its files."""
    shutil.rmtree(directory)
