"""One trial: a copy of a stock, one damage in it, starts, everything read and written, and the judgement.

A start that is refused must be refused again, with all files as they were; then what its text advises is done.
"""

from __future__ import annotations

import hashlib
import io
import json
import resource
import shutil
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from random import Random

from confluent_kafka import Consumer, TopicPartition

from broker_process import POLL_SECONDS, START_SECONDS, Broker
from cairnmq.cli.main import main as cairn
from chaos.world import Broken
from damage.hurt import LOCK, NEXT, Hurt, choose
from damage.judgement import MEMORY_BYTES_MAX, READ_ONLY, RESTORED, Judge, Verdict, name
from damage.sight import Seen, look, written
from damage.stock import Record, Stock

RESTARTED_SHARE, LIBRDKAFKA_SHARE, RESTORED_SHARE = 0.25, 0.08, 0.34
LIBRDKAFKA_SECONDS = 15.0
HOLD_NOTHING = (LOCK, "reserve", NEXT)
NEVER_REFUSED = ("segment", "pack", "index", "timeindex", "txnindex", "queue.json", "reserve", "next.new", "previous")
"""With these damaged the broker starts, as docs/recovery.md says."""
ADVICE = ("Restore", "restore", "Put back", "--accept-loss", "cairn repair", "mount")


class Trial:
    """`run` gives the verdict, with findings if a promise was broken."""

    def __init__(self, stock: Stock, seed: int, directory: Path, tally: Counter[str]) -> None:
        self.stock = stock
        self.rng = Random(f"{stock.name} {seed}")
        self.directory = directory
        self.copy = directory / "copy"
        self.tally = tally
        self.brokers: list[Broker] = []
        self.hurt: Hurt | None = None
        self.verify_lines: list[str] = []
        self.peak_bytes = 0
        self.reasons: list[str] = []  # of the last broker that was looked at

    def run(self, *, kind: str | None = None, unhurt: bool = False) -> Verdict:
        """`kind`: in a file of this kind; `unhurt`: nothing is damaged, and so everything must be well."""
        shutil.copytree(self.stock.root, self.copy)
        if not unhurt:
            self.hurt = choose(self.copy, self.rng, kind)
            self.hurt.apply(self.copy)
        heaviest = heaviest_child()
        try:
            verdict = self.judged()
        finally:
            for broker in self.brokers:
                if broker.running:
                    broker.kill_tree()
        if MEMORY_BYTES_MAX < heaviest_child() > heaviest:
            verdict.findings.append(f"{heaviest_child() >> 20} MB of memory in one process")
        if verdict.hurts and not self.verify_lines:
            verdict.findings.append("cairn verify finds nothing")
        return verdict

    def judged(self) -> Verdict:
        before = digests(self.copy)
        self.verify_lines = verify(self.copy, self.tally)
        verdict = Verdict()
        if digests(self.copy) != before:
            verdict.findings.append("cairn verify changed files")
        broker = self.broker(self.copy)
        if not started(broker):
            return self.add(verdict, self.refused(broker))
        first = self.add(verdict, self.inspect(broker, self.copy))
        if first.outcome == READ_ONLY and "--accept-loss" in broker.log() + " ".join(self.reasons):
            first.findings += self.accepted_at_once(broker.log())
        return first

    @staticmethod
    def add(verdict: Verdict, other: Verdict) -> Verdict:
        other.findings = [*verdict.findings, *other.findings]
        other.hurts |= verdict.hurts
        return other

    def broker(self, copy: Path, *flags: str) -> Broker:
        broker = self.stock.broker(self.directory / f"process-{len(self.brokers)}", copy, flags)
        self.brokers.append(broker)
        return broker

    # ---------------------------------------------------------------------------------------- a start that works

    def inspect(self, broker: Broker, copy: Path, accepted: list[str] | None = None) -> Verdict:
        """The broker runs, and ends."""
        seen = look(broker, self.stock)
        by_librdkafka = read_by_librdkafka(broker, self.stock, seen) if self.rng.random() < LIBRDKAFKA_SHARE else []
        self.tally["records checked"] += seen.records_read
        self.peak_bytes = max(self.peak_bytes, seen.memory_bytes)
        self.reasons = seen.reasons
        seen.exit_code = broker.stop()
        seen.log = broker.log()
        verdict = Judge(self.stock, self.hurt, seen, accepted).judge()
        verdict.findings += by_librdkafka
        if self.rng.random() < RESTARTED_SHARE and not verdict.findings:
            verdict.findings += self.restarted(copy, seen)
        return verdict

    def restarted(self, copy: Path, first: Seen) -> list[str]:
        """A second start shows what the first one showed, and what was written then."""
        self.tally["starts again after a trial"] += 1
        broker = self.broker(copy)
        if not started(broker):
            return [f"the next start was refused: {broker.log_tail(5)}"]
        again = look(broker, self.stock, write=False)
        findings = []
        for place, partition in first.partitions.items():
            pending = self.stock.pending(place)
            later = again.partitions[place].records
            gone = [offset for offset in partition.records if offset in pending and offset not in later]
            new = first.writes.get(place)
            for number, offset in enumerate(new.offsets if new is not None else ()):
                if place.topic in self.stock.compacted:
                    continue  # one key: older ones may go
                values = [record.value for record in written(place, number)]
                ours = [later.get(offset + each, Record(0, None, None)).value for each in range(len(values))]
                if ours != values and place.topic != "left-open":
                    findings.append(f"acknowledged and gone after the next start: {name(place)} at offset {offset}")
            if gone:
                findings.append(f"{name(place)}: {len(gone)} records from offset {gone[0]} on are gone after a restart")
        for key, (code, offset) in first.committed.items():
            now_code, now = again.committed.get(key, (0, -1))
            if not (code or now_code) and now != offset:
                findings.append(f"the committed offset of {key} went from {offset} to {now} with a restart")
        if again.epoch <= first.epoch:
            findings.append(f"given out again: epoch {again.epoch}")
        if broker.stop():
            findings.append("SIGTERM after a restart did not end with 0")
        if "Traceback" in broker.log():
            findings.append("a traceback in the log after a restart")
        return findings

    def accepted_at_once(self, text: str) -> list[str]:
        """What takes no writes takes them again when somebody accepts what is lost."""
        self.tally["no writes, then the loss was accepted"] += 1
        copy = self.directory / "accepted"
        shutil.copytree(self.stock.root, copy)
        assert self.hurt is not None
        self.hurt.apply(copy)
        broker = self.broker(copy, "--accept-loss")
        if not started(broker):
            return [f"refused although the loss was accepted: {said(broker.log())}"]
        findings = self.inspect(broker, copy, [text, *self.reasons]).findings
        return [f"after the loss was accepted: {finding}" for finding in findings]

    # -------------------------------------------------------------------------------------- a start that is refused

    def refused(self, broker: Broker) -> Verdict:
        assert self.hurt is not None, f"refused without any damage:\n{broker.log_tail()}"
        verdict = Verdict(hurts=True)
        text = broker.log()
        found = verdict.findings.append
        if "Traceback" in text:
            found("a refused start left a traceback")
        if self.hurt.kind in NEVER_REFUSED:
            found(f"a damaged {self.hurt.kind} made the start fail: {said(text)}")
        if not any(word in text for word in (*self.hurt.names, *ADVICE)):
            found(f"a refusal that names neither the file nor what to do: {said(text)}")
        state = digests(self.copy)
        again = self.broker(self.copy)
        if started(again):
            found(f"refused at first and let in by the second start; the first said: {said(text)}")
            return self.add(verdict, self.inspect(again, self.copy))
        if digests(self.copy) != state:
            changed = {file for file, _ in digests(self.copy).items() ^ state.items()}
            found(f"a start that is refused changed {sorted(changed)}")
        if self.rng.random() < RESTORED_SHARE:
            verdict.findings += self.restored()
        return self.add(verdict, self.remedied(text))

    def restored(self) -> list[str]:
        """Refused starts have done no harm: with the file put back all is as it was."""
        assert self.hurt is not None
        self.tally["refused, then the file was put back"] += 1
        whole = self.directory / f"restored-{len(self.brokers)}"
        shutil.copytree(self.copy, whole)
        for file in [self.hurt.file, *self.beside(self.hurt.file)]:
            put_back(self.stock.root / file, whole / file)
        broker = self.broker(whole)
        if not started(broker):
            return [f"with {self.hurt.file} put back the start fails: {said(broker.log())}"]
        findings = self.inspect(broker, whole).findings
        return [f"with {self.hurt.file} put back: {finding}" for finding in findings]

    @staticmethod
    def beside(file: str) -> list[str]:
        """A database and its write-ahead log are one: nobody restores one of them."""
        return [file.removesuffix("-wal"), f"{file.removesuffix('-wal')}-wal"] if "meta.db" in file else []

    def remedied(self, text: str) -> Verdict:
        """What the text advises, and then everything that it does not list as lost must be there."""
        assert self.hurt is not None
        accepted = [text]
        if "cairn repair" in text:
            code, out = run_cairn("repair", *places(self.copy), "--yes")
            accepted.append(out)
            if code:
                return Verdict([f"cairn repair ended with {code}: {said(out)}"], hurts=True)
            self.tally["repaired by cairn repair"] += 1
            wrong = [line for line in verify(self.copy, self.tally) if "checkpoints/" in line]
            if wrong:
                return Verdict([f"cairn verify after cairn repair: {wrong[0]}"], hurts=True)
            broker = self.broker(self.copy)
            if not started(broker) and "--accept-loss" in broker.log():
                accepted.append(broker.log())
                broker = self.broker(self.copy, "--accept-loss")
        elif "--accept-loss" in text:
            broker = self.broker(self.copy, "--accept-loss")
        else:
            return Verdict([*self.restored()], outcome=RESTORED, hurts=True)
        if not broker.running and not started(broker):
            return Verdict([f"refused although the loss was accepted: {said(broker.log())}"], hurts=True)
        verdict = self.inspect(broker, self.copy, accepted)
        verdict.findings = [f"after the loss was accepted: {finding}" for finding in verdict.findings]
        return verdict


def started(broker: Broker) -> bool:
    """False: it ended by itself."""
    broker.launch()
    assert broker.process is not None
    deadline = time.monotonic() + START_SECONDS
    while not broker.ready_path.exists():
        if broker.process.poll() is not None:
            return False
        if time.monotonic() > deadline:
            raise Broken(f"neither ready nor refused after {START_SECONDS:g} s\n{broker.log_tail()}")
        time.sleep(POLL_SECONDS)
    ready = json.loads(broker.ready_path.read_text())
    broker.bootstrap, broker.http, broker.pid = ready["bootstrap"], ready["http"], ready["pid"]
    return True


def places(copy: Path) -> list[str]:
    """A data directory as an argument, with its journals if they lie elsewhere."""
    apart = copy / "journals"
    return [str(copy / "data"), *(["--journal-dir", str(apart)] if apart.exists() else [])]


def run_cairn(*arguments: str) -> tuple[int, str]:
    """A command in this process, which has all modules loaded: exit code and what it wrote."""
    written_to = io.TextIOWrapper(raw := io.BytesIO(), encoding="utf-8", write_through=True)
    before = sys.stdout, sys.stderr
    sys.stdout = sys.stderr = written_to
    try:
        code = cairn(arguments)
    except SystemExit as ended:
        code = int(ended.code or 0)
    finally:
        sys.stdout, sys.stderr = before
        written_to.flush()
    return code, raw.getvalue().decode(errors="replace")


def verify(copy: Path, tally: Counter[str]) -> list[str]:
    """Its findings, a line each; notes are what a start repairs."""
    code, out = run_cairn("verify", *places(copy))
    tally["verify runs"] += 1
    lines = [line for line in out.splitlines() if not line.startswith("note: ")]
    if "Traceback" in out:
        raise Broken(f"cairn verify:\n{out}")
    return lines[:-1] if code else []


def digests(root: Path) -> dict[str, str]:
    """Every file but locks and those that only hold room. Of a database the content counts: SQLite may move it between
    its two files."""
    found = {}
    for path in root.rglob("*"):
        if path.is_file() and path.name not in HOLD_NOTHING and not path.name.startswith("meta.db"):
            found[path.relative_to(root).as_posix()] = hashlib.sha256(path.read_bytes()).hexdigest()
    for database in root.rglob("meta.db*"):
        if not database.name.endswith(("-wal", "-shm")):
            found[database.relative_to(root).as_posix()] = database_digest(database)
    return found


def database_digest(path: Path) -> str:
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory) / "copy.db"
        for suffix in ("", "-wal"):
            if Path(f"{path}{suffix}").exists():
                shutil.copyfile(f"{path}{suffix}", f"{copy}{suffix}")
        try:
            with closing(sqlite3.connect(copy)) as database:
                return hashlib.sha256("\n".join(database.iterdump()).encode("utf-8", "surrogateescape")).hexdigest()
        except (sqlite3.Error, UnicodeDecodeError):
            return hashlib.sha256(path.read_bytes()).hexdigest()


def put_back(source: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    if source.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


def read_by_librdkafka(broker: Broker, stock: Stock, seen: Seen) -> list[str]:
    """Partitions that our own client could read whole, read by the client that most programs have."""
    wanted = {
        place: stock.pending(place)
        for place, partition in seen.partitions.items()
        if not partition.gaps and stock.pending(place)
    }
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "judge",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "auto.offset.reset": "error",
        "fetch.wait.max.ms": 50,
        "log_level": 2,
    }
    findings: list[str] = []
    missing = {(place, offset) for place, pending in wanted.items() for offset in pending}
    deadline = time.monotonic() + LIBRDKAFKA_SECONDS
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(*place, stock.starts[place]) for place in wanted])
        while missing and time.monotonic() < deadline and not findings:
            for message in consumer.consume(1000, 0.2):
                if message.error() is not None:
                    findings.append(f"librdkafka: {message.error()}")
                    continue
                place = next(each for each in wanted if each == (message.topic(), message.partition()))
                offset, headers = message.offset(), tuple(message.headers() or ())
                record = Record(message.timestamp()[1], message.key(), message.value(), headers)
                missing.discard((place, offset))
                if offset < stock.ends[place] and stock.records[place].get(offset) != record:
                    findings.append(f"wrong record for librdkafka: {name(place)} at offset {offset}")
    if missing and not findings:
        findings.append(f"librdkafka did not get {len(missing)} records, first {min(missing)}")
    return findings


def said(text: str) -> str:
    """The end of a log or of an output, on one line."""
    return " / ".join(line.strip() for line in text.splitlines() if not line.startswith("--- start"))[-600:]


def heaviest_child() -> int:
    """Bytes of the largest process that has ended so far."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
