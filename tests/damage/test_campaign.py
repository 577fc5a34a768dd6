"""Hundreds of damages at random, one at a time, in every kind of file: what is served is what was stored, or an error
names the place; queues that have nothing in the damaged file are complete; `verify` finds whatever costs records."""

from __future__ import annotations

import os
import re
from collections import Counter
from random import Random

import pytest

from cairnmq.codec.batch import only_empty
from cairnmq.errors import Fault
from cairnmq.storage.check.verify import check
from cairnmq.storage.packs.pack import PackReader
from cairnmq.storage.recovery.lost_disk import accept, find_loss
from cairnmq.testing.sim_disk import SimDisk
from damage.world import NOW, SPECS, Model, World, made

TRIALS = int(os.environ.get("CAIRN_DAMAGES", "60"))  # of each kind of file, for each of two worlds
KINDS = {
    "journal": r"\d+/\d+\.jnl",
    "segment": r"queues/.*\.log",
    "offset index": r"queues/.*\.index",
    "time index": r"queues/.*\.timeindex",
    "identity": r"queues/.*/queue\.json",
    "pack": r"packs/.*\.pack",
    "checkpoint": r"checkpoints/.*\.ckpt",
}
WAYS = ("bit", "bytes", "cut", "zeroes", "gone")


def files(disk: SimDisk, root: str = "") -> list[str]:
    found = []
    for name in disk.list(root):
        path = f"{root}/{name}" if root else name
        try:
            found.extend(files(disk, path))
        except NotADirectoryError:
            found.append(path)
    return found


def damaged(data: bytes, way: str, random: Random) -> bytes | None:
    """None: the file is gone."""
    changed = bytearray(data)
    at = random.randrange(len(data))
    if way == "bit":
        changed[at] ^= 1 << random.randrange(8)
    elif way == "bytes":
        run = random.randbytes(random.randint(1, 64))
        changed[at : at + len(run)] = run[: len(data) - at]
    elif way == "cut":
        del changed[at:]
    elif way == "zeroes":
        start = at // 4096 * 4096
        end = min(start + 4096, len(data))
        changed[start:end] = bytes(end - start)
    else:
        return None
    return bytes(changed)


def put(disk: SimDisk, name: str, data: bytes | None) -> None:
    disk.remove(name)
    if data is not None:
        file = disk.create(name)
        file.append([data])
        file.sync()


def owners(world: World, name: str) -> set[int]:
    """Queues that may suffer when this file is damaged."""
    if name.startswith("queues/"):
        return {queue_id for queue_id, spec in SPECS.items() if name.startswith(spec.directory + "/")}
    if name.startswith("packs/"):
        return {extent.queue_id for extent in PackReader(world.read_disk.open(name), int(name[-25:-5]))}
    return {queue_id for queue_id, queue in world.engine.queues.items() if queue.journal == int(name.partition("/")[0])}


class Outcome:
    """What reading everything gave."""

    def __init__(self, world: World, model: Model) -> None:
        self.faults: list[tuple[int, Fault]] = []
        self.missing: set[int] = set()
        for queue_id, batches in model.items():
            for base, batch in batches.items():
                answer = world.read(queue_id, base)
                if isinstance(answer, Fault):
                    self.faults.append((queue_id, answer))
                elif answer is None:
                    self.missing.add(queue_id)
                else:
                    assert answer == batch, f"queue {queue_id}, offset {base}: not what was stored"
            for base, batch in world.read_all(queue_id).items():
                assert batches.get(base) == batch, f"queue {queue_id}, offset {base}: not what was stored"

    @property
    def queues(self) -> set[int]:
        return {queue_id for queue_id, _ in self.faults} | self.missing


@pytest.fixture(scope="module", params=[0, 1 << 20], ids=["journals deleted", "journals kept"])
def whole(request: pytest.FixtureRequest) -> tuple[World, Model]:
    world, model = made(7, retain_bytes=request.param)
    journal_disk, read_disk = world.killed()
    assert not [finding for finding in check(read_disk, journal_disk) if not finding.is_note]
    return world, model


@pytest.mark.parametrize("kind", KINDS)
def test_damage_at_random(kind: str, whole: tuple[World, Model]) -> None:
    world, model = whole
    kept = world.retain_bytes > 0
    seen: Counter[str] = Counter()
    for trial in range(TRIALS):
        random = Random(f"{kind}-{kept}-{trial}")
        journal_disk, read_disk = world.killed()
        disk = journal_disk if kind == "journal" else read_disk
        names = [name for name in files(disk) if re.fullmatch(KINDS[kind], name)]
        name = random.choice(names)
        file = disk.open(name)
        data = file.read(0, file.size())
        way = random.choice(WAYS if kind not in ("checkpoint", "journal") else WAYS[:-1])
        if not data:
            continue
        after = damaged(data, way, random)
        if after == data:
            continue
        place = f"trial {trial}: {way} in {name}"
        put(disk, name, after)
        findings = [finding for finding in check(read_disk, journal_disk) if not finding.is_note]
        try:
            again = World(journal_disk, read_disk, 3, retain_bytes=world.retain_bytes)
        except Fault as fault:
            assert kind in ("checkpoint", "journal"), f"{place}: {fault}"
            assert findings, f"{place}: verify is silent about {fault}"
            seen["refused"] += 1
            continue
        outcome = Outcome(again, model)
        if kind != "checkpoint":
            assert outcome.queues <= owners(world, name), f"{place}: {outcome.queues} suffer"
        stopped = [path for path in again.engine.paths.values() if path.stopped is not None]
        if outcome.faults or stopped:
            assert findings, f"{place}: verify is silent about {outcome.faults[:1]}"
        for _, fault in outcome.faults:
            assert "packs/" in str(fault) or "queues/" in str(fault), f"{place}: {fault}"
        assert not outcome.missing or stopped, f"{place}: {outcome.missing} are incomplete, and nobody says so"
        if stopped:
            seen["accepted"] += accepted_loss(world, *world_after(world, name, after), model, place)
        seen["lost" if outcome.queues else "stopped" if stopped else "harmless"] += 1
        # the splitter goes on, makes good what it can, and what is written now is stored and read as ever
        again.split()
        again.checkpoint()
        again.repair(outcome.faults)
        later = Outcome(again, model)
        assert later.queues <= outcome.queues, f"{place}: {later.queues} suffer now, {outcome.queues} before"
        if kept and kind in ("segment", "pack", "identity", "offset index", "time index"):
            assert not later.queues, f"{place}: {later.faults[:2]} although the journals have it"
            seen["mended"] += bool(outcome.queues)
        if "index" in kind or kind == "identity":
            again.look()
            wrong = [finding for finding in check(read_disk, journal_disk) if not finding.is_note]
            assert not wrong, f"{place}: {wrong[0]}"
            seen["rebuilt"] += bool(findings)
    print(f"{kind}, {'with' if kept else 'without'} journals: {dict(seen)}")


@pytest.mark.parametrize("kind", ["journal", "segment", "offset index", "time index", "pack"])
def test_bits_that_flip_under_a_running_broker(kind: str, whole: tuple[World, Model]) -> None:
    """Files are open, and what lies in them was believed once."""
    world, model = whole
    seen: Counter[str] = Counter()
    for trial in range(TRIALS // 2):
        random = Random(f"running-{kind}-{world.retain_bytes}-{trial}")
        again = World(*world.killed(), epoch=3, retain_bytes=world.retain_bytes)
        assert not Outcome(again, model).queues
        disk = again.journal_disk if kind == "journal" else again.read_disk
        name = random.choice([name for name in files(disk) if re.fullmatch(KINDS[kind], name)])
        size = disk.open(name).size()
        if not size:
            continue
        position = random.randrange(size)
        disk.damage(name, position, 1 << random.randrange(8))
        outcome = Outcome(again, model)
        assert outcome.queues <= owners(world, name) and not outcome.missing, f"trial {trial}: {name} at {position}"
        for _, fault in outcome.faults:
            assert name in str(fault), f"trial {trial}: {fault}"
        seen["lost" if outcome.queues else "harmless"] += 1
        if world.retain_bytes and kind in ("segment", "pack"):
            again.repair(outcome.faults)
            later = Outcome(again, model)
            assert not later.queues, f"trial {trial}: {name} at {position}: {later.faults[:2]}"
            seen["mended"] += bool(outcome.queues)
    print(f"{kind} under a running broker: {dict(seen)}")


def world_after(world: World, name: str, data: bytes | None) -> tuple[SimDisk, SimDisk]:
    journal_disk, read_disk = world.killed()
    put(journal_disk, name, data)
    return journal_disk, read_disk


def accepted_loss(world: World, journal_disk: SimDisk, read_disk: SimDisk, model: Model, place: str) -> int:
    """With --accept-loss: all but what is listed is served, before and behind the damage, and writing goes on."""
    loss = find_loss(journal_disk, read_disk, SPECS.values())
    assert loss is not None, place
    accept(journal_disk, read_disk, loss, epoch=4, seed=6, now_ms=NOW)
    again = World(journal_disk, read_disk, 5, retain_bytes=world.retain_bytes)
    assert not [path for path in again.engine.paths.values() if path.stopped is not None], place
    for queue_id, batches in model.items():
        shown = again.read_all(queue_id)
        lost = [(each.start, each.end) for each in loss.queues if each.partition == queue_id]
        for base, batch in batches.items():
            if any(start <= base and (end is None or base < end) for start, end in lost):
                assert shown.get(base) in (None, batch) or only_empty(shown[base]), f"{place}: {queue_id} at {base}"
            else:
                assert shown.get(base) == batch, f"{place}: queue {queue_id} lost {base}, and nobody says so"
    again.produce(1, Random(1), {queue_id: {} for queue_id in SPECS})
    again.split()
    again.checkpoint()
    assert not [finding for finding in check(read_disk, journal_disk) if not finding.is_note], place
    return 1
