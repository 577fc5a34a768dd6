"""The newest messages of a topic, as the status page shows them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from cairnmq.broker.http import message_status
from cairnmq.broker.storage_loop import newest_records
from cairnmq.broker.storage_loop.newest_records import NewestRecords
from cairnmq.codec.records import Record, build_batch
from cairnmq.storage.live.queue import Queue
from unit.broker.handlers.test_read_committed import allow, end, send
from unit.broker.http.test_server import Web, open_web
from unit.broker.rig import NOW_MS, Rig, batch, open_rig, scenario

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)


async def shown(web: Web, topic: str, query: str = "") -> dict[str, Any]:
    code, _, body = await web.get(f"/api/v1/topics/{topic}/messages{query}", host="127.0.0.1:8080")
    assert code == 200, body
    answer: dict[str, Any] = json.loads(body)
    return answer


def values(answer: dict[str, Any]) -> list[str]:
    return [row["value"] for row in answer["messages"]]


async def record(rig: Rig, topic: str, **fields: Any) -> None:
    await rig.produce(topic, build_batch([Record(0, NOW_MS, **{"key": None, "value": b"v"} | fields)]))


@scenario
async def test_the_newest_come_first_over_all_partitions(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig, open_web(rig) as web:
        await rig.create("orders", partitions=3)
        for number in range(9):
            data = batch(b"%d" % number, b"%d again" % number, timestamp=NOW_MS + 10 * number)
            await rig.produce("orders", data, partition=number % 2)
        answer = await shown(web, "orders", "?limit=5")
        assert values(answer) == ["8 again", "8", "7 again", "7", "6 again"]
        assert answer["messages"][0] == {
            "partition": 0, "offset": 9, "timestamp": NOW_MS + 81, "key": None, "value": "8 again", "value_bytes": 7,
            "headers": [], "headers_count": 0,
        }  # fmt: skip
        assert (answer["partitions"], answer["partitions_read"], answer["complete"]) == (2, 2, True)
        assert values(await shown(web, "orders", "?partition=1&limit=3")) == ["7 again", "7", "5 again"]
        assert values(await shown(web, "orders", "?partition=2")) == []
        assert len(values(await shown(web, "orders"))) == 18


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
@scenario
async def test_compressed_batches_are_unpacked(tmp_path: Path, codec: int) -> None:
    async with open_rig(tmp_path) as rig, open_web(rig) as web:
        await rig.create("t")
        await rig.produce("t", batch(*[b"%d" % number for number in range(1000)], codec=codec))
        assert values(await shown(web, "t", "?limit=3")) == ["999", "998", "997"]


@scenario
async def test_a_batch_that_expands_too_far_is_named_and_the_others_are_shown(tmp_path: Path) -> None:
    async with open_rig(tmp_path, {"cairn.decompressed.bytes.max": "100000"}) as rig, open_web(rig) as web:
        await rig.create("t")
        await rig.produce("t", batch(b"before"))
        await rig.produce("t", batch(bytes(200_000), codec=GZIP))
        await rig.produce("t", batch(b"after"))
        answer = await shown(web, "t")
        assert values(answer) == ["after", "before"]
        (problem,) = answer["problems"]
        assert problem["partition"] == 0 and "batch at offset 1" in problem["error"]
        assert "more than 100000 bytes" in problem["error"]


@pytest.mark.parametrize(
    "data, text, encoding",
    [
        (b"plain", "plain", None),
        ("ü\n\t".encode(), "ü\n\t", None),
        (b"", "", None),
        (None, None, None),
        (b"\xff\xfe", "ff fe", "hex"),
        (b"a\x00b", "61 00 62", "hex"),
        (b"\x1b[31mred", "1b 5b 33 31 6d 72 65 64", "hex"),
        ("\x85".encode(), "c2 85", "hex"),
        (b"<script>", "<script>", None),
    ],
)
@scenario
async def test_text_is_text_and_the_rest_is_hexadecimal(
    tmp_path: Path, data: bytes | None, text: str | None, encoding: str | None
) -> None:
    async with open_rig(tmp_path) as rig, open_web(rig) as web:
        await rig.create("t")
        await record(rig, "t", key=data, value=data, headers=(("name", data),))
        (row,) = (await shown(web, "t"))["messages"]
        for field in ("key", "value"):
            assert (row[field], row.get(f"{field}_encoding")) == (text, encoding)
            assert row.get(f"{field}_bytes") == (None if data is None else len(data))
        assert (row["headers"][0]["value"], row["headers"][0].get("value_encoding")) == (text, encoding)


@scenario
async def test_what_is_long_is_cut_not_through_a_character(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig, open_web(rig) as web:
        await rig.create("t")
        long = ("x" + "ü" * 10_000).encode()
        headers = tuple((f"name-{number}", b"x" * 1000) for number in range(100))
        await record(rig, "t", key=long, value=long, headers=headers)
        await record(rig, "t", key=b"\xff" * 10_000, value=b"\xff" * 10_000)
        binary, text = (await shown(web, "t"))["messages"]
        assert len(text["value"].encode()) == message_status.VALUE_BYTES - 1 and text["value"].endswith("ü")
        assert text["value_bytes"] == len(long) and len(text["key"].encode()) < message_status.KEY_BYTES
        assert len(text["headers"]) == message_status.HEADERS_SHOWN and text["headers_count"] == 100
        assert len(text["headers"][0]["value"]) == message_status.HEADER_BYTES
        assert len(binary["value"]) < message_status.VALUE_BYTES and binary["value_bytes"] == 10_000


@scenario
async def test_a_page_is_bounded_however_much_is_asked_for(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig, open_web(rig) as web:
        await rig.create("t")
        await rig.produce("t", batch(*[b"\xff" * 5000] * 150))
        _, _, body = await web.get("/api/v1/topics/t/messages?limit=999999", host="localhost")
        assert len(json.loads(body)["messages"]) == message_status.MESSAGES_MAX
        assert len(body) < 1_000_000


@scenario
async def test_a_look_reads_so_much_and_says_that_there_is_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_rig(tmp_path) as rig, open_web(rig) as web:
        await rig.create("t")
        for number in range(10):
            await rig.produce("t", batch(b"%d" % number))
        with monkeypatch.context() as patch:
            patch.setattr(newest_records, "BATCHES_MAX", 4)
            answer = await shown(web, "t")
            assert values(answer) == ["9", "8", "7", "6"] and not answer["complete"]
        monkeypatch.setattr(newest_records, "READ_BYTES_MAX", 150)  # two batches
        answer = await shown(web, "t")
        assert values(answer)[:2] == ["9", "8"] and len(values(answer)) < 5 and not answer["complete"]


@scenario
async def test_of_very_many_partitions_those_written_last_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_status, "PARTITIONS_MAX", 2)
    async with open_rig(tmp_path) as rig, open_web(rig) as web:
        await rig.create("t", partitions=8)
        for partition in (5, 1, 6, 3):
            await rig.produce("t", batch(b"%d" % partition, timestamp=NOW_MS + partition), partition=partition)
        answer = await shown(web, "t")
        assert values(answer) == ["6", "5"]
        assert (answer["partitions"], answer["partitions_read"]) == (4, 2)


@scenario
async def test_deleted_records_are_not_shown(tmp_path: Path) -> None:
    """The log start may lie within a batch."""
    async with open_rig(tmp_path) as rig, open_web(rig) as web:
        await rig.create("t")
        await rig.produce("t", batch(b"0", b"1", b"2"))
        await rig.produce("t", batch(b"3"))
        await rig.ctx.store.trim(rig.queue("t"), 2)
        assert values(await shown(web, "t")) == ["3", "2"]


@scenario
async def test_a_partition_that_cannot_be_read_does_not_hide_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_rig(tmp_path) as rig, open_web(rig) as web:
        await rig.create("t", partitions=2)
        for partition in range(2):
            await rig.produce("t", batch(b"%d" % partition), partition=partition)
        read = NewestRecords.read

        async def fail(records: NewestRecords, queue: Queue, offset: int) -> memoryview | None:
            if queue.partition == 1:
                raise OSError(5, "Input/output error")
            return await read(records, queue, offset)

        monkeypatch.setattr(NewestRecords, "read", fail)
        answer = await shown(web, "t")
        assert values(answer) == ["0"]
        assert answer["problems"] == [{"partition": 1, "error": "[Errno 5] Input/output error"}]


@scenario
async def test_a_topic_that_is_deleted_meanwhile_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("t")
        await rig.produce("t", batch(b"1"))
        queue, newest = rig.queue("t"), rig.ctx.store.newest
        await rig.ctx.store.delete_queues([queue.queue_id])
        found = await newest.find([queue], 10)
        assert (found.records, found.failures) == ([], [])
        assert not rig.ctx.store.engine.damages.places


@scenario
async def test_the_loop_goes_on_meanwhile(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        await rig.create("t")
        for number in range(50):
            await rig.produce("t", batch(b"%d" % number))
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        found = await rig.ctx.store.newest.find([rig.queue("t")], 50)
        counting.cancel()
        assert len(found.records) == 50 and turns >= 50


@pytest.mark.parametrize("query", ["?partition=x", "?limit=-1", "?limit=1e3", "?partition=99999999999", "?limit=٣"])
@scenario
async def test_what_is_no_number_is_refused(tmp_path: Path, query: str) -> None:
    async with open_rig(tmp_path) as rig, open_web(rig) as web:
        await rig.create("t")
        assert (await web.get(f"/api/v1/topics/t/messages{query}", host="localhost"))[0] == 400


@scenario
async def test_no_such_topic_and_nothing_before_recovery(tmp_path: Path) -> None:
    async with open_web() as web:
        assert (await web.get("/api/v1/topics/t/messages", host="localhost"))[0] == 404
    async with open_rig(tmp_path) as rig, open_web(rig) as web:
        assert (await web.get("/api/v1/topics/t/messages", host="localhost"))[0] == 404


@pytest.mark.parametrize(
    "host, code",
    [
        ("127.0.0.1:8080", 200), ("localhost:8080", 200), ("localhost", 200), ("[::1]:8080", 200), ("[::1]", 200),
        ("10.1.2.3:80", 200), ("evil.example:8080", 403), ("evil.example", 403), ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example:8080", 403),
    ],
)  # fmt: skip
@scenario
async def test_a_website_that_gave_its_name_our_address_reads_no_messages(tmp_path: Path, host: str, code: int) -> None:
    """The browser sends the website's name as the host."""
    async with open_rig(tmp_path) as rig, open_web(rig) as web:
        await rig.create("t")
        assert (await web.get("/api/v1/topics/t/messages", host=host))[0] == code


@scenario
async def test_a_transaction_that_is_open_or_aborted_is_said_beside_its_messages(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig, open_web(rig) as web:
        await rig.create("a")
        allow(rig)
        for pid, value in enumerate((b"committed", b"aborted", b"open"), 5):
            await send(rig, pid, value)
            if value != b"open":
                await end(rig, pid, commit=value == b"committed")
        rows = (await shown(web, "a"))["messages"]
        assert [(row["value"], row.get("transaction")) for row in rows] == [
            ("open", "open"), ("aborted", "aborted"), ("committed", None),
        ]  # fmt: skip
