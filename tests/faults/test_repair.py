"""A real broker's directory with a damaged checkpoint: no start, `cairn repair`, a start, and clients find everything
that is not listed as lost. The directories have plain, packed, compacted and transactional topics, some transactions
aborted, committed offsets and deleted records; one was stopped in order, the other killed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from broker_process import CAIRN
from damage.judgement import Judge
from damage.sight import look
from damage.stock import Stock, build
from damage.trial import digests, places, read_by_librdkafka, started
from damage.wire_client import WireClient


@pytest.fixture(scope="module", params=["clean", "killed"])
def stock(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Stock:
    return build(tmp_path_factory.mktemp("stock") / request.param, request.param)


def flipped(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 16
    file.write_bytes(data)


def cut(file: Path) -> None:
    """In the whole state, so that nothing of it is a checkpoint."""
    file.write_bytes(file.read_bytes()[:300])


def zeroed(file: Path) -> None:
    file.write_bytes(bytes(4096) + file.read_bytes()[4096:])


def gone(file: Path) -> None:
    file.unlink()


def both_gone(file: Path) -> None:
    for path in file.parent.iterdir():
        path.unlink()


def cairn(*words: str) -> tuple[int, str]:
    command = [CAIRN, *words]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("hurt", [flipped, cut, zeroed, gone, both_gone])
def test_everything_is_there_after_a_repair(stock: Stock, tmp_path: Path, hurt: Callable[[Path], None]) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(stock.root, copy)
    hurt(max((copy / "data" / "checkpoints").glob("*.ckpt")))
    state = digests(copy)
    refused = stock.broker(tmp_path / "refused", copy)
    assert not started(refused), "the checkpoint is not to be believed"
    assert "cairn repair DIR" in refused.log()
    assert hurt is both_gone or "cairn repair" in cairn("verify", *places(copy))[1]

    code, said = cairn("repair", *places(copy))
    assert code == 1 and "nothing was changed" in said and digests(copy) == state
    code, said = cairn("repair", *places(copy), "--yes")
    assert code == 0, said

    broker = stock.broker(tmp_path / "process", copy)
    try:
        assert started(broker), broker.log_tail()
        code, again = cairn("repair", *places(copy), "--yes")
        assert code == 1 and "is in use by" in again
        starts = log_starts(broker.bootstrap, stock)
        seen = look(broker, stock)
        findings = read_by_librdkafka(broker, stock, seen)
        seen.exit_code = broker.stop()
    finally:
        broker.close()
    seen.log = broker.log()
    findings += Judge(stock, None, seen, [said]).judge().findings
    assert not findings, f"{said}\n" + "\n".join(findings)
    for place, partition in seen.partitions.items():
        missing = [offset for offset in stock.pending(place) if offset not in partition.records]
        assert not missing, f"{place}: every record is in some file"
    assert not seen.status["damages"] and not seen.reasons
    if "nothing is lost" in said:
        assert starts == stock.starts and seen.status["losses"] == []
        for key, offset in stock.committed.items():
            assert seen.committed[key] == (0, offset)
        for name, (_, producer_id, _) in seen.transactional.items():
            assert producer_id == stock.transactional[name][0], f"{name}: its state was there"
    else:
        (loss,) = seen.status["losses"]
        assert all(line in said for line in loss["what"])
        assert {place for place in starts if starts[place] > stock.starts[place]} == set(), "no record is hidden"
    if hurt is not both_gone:
        assert starts == stock.starts, "the previous checkpoint, or the journals, knew what was deleted"
    assert cairn("verify", *places(copy))[0] == 0
    assert cairn("repair", *places(copy))[0] == 0


def log_starts(bootstrap: str, stock: Stock) -> dict[object, int]:
    with WireClient(bootstrap) as wire:
        wire.topics()
        fetched = wire.fetch({place: stock.ends[place] for place in stock.starts})
    return {place: each.log_start for place, each in fetched.items()}
