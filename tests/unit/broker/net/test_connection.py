"""Connections over real sockets: order, pipelining, limits, and that a bad client harms only itself."""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import struct

import pytest

from cairnmq.broker.net.connection import Intake, Phase
from cairnmq.broker.net.connection_limits import Limits
from cairnmq.broker.requests.reply import AwaitedReply, CloseConnection, Response
from cairnmq.errors import ErrorCode
from cairnmq.storage.files.buffers import LARGE, SMALL, unseen
from cairnmq.types import Buffer
from cairnmq.wire.apis import API_VERSIONS, FETCH, JOIN_GROUP, METADATA, PRODUCE
from cairnmq.wire.codec import Malformed, decode
from cairnmq.wire.messages import ApiVersionsResponse
from unit.broker.rig import scenario, until
from unit.broker.wire_client import Bench, Client, frame, open_bench

# ------------------------------------------------------------------------------------------------------------ order


@scenario
async def test_produce_requests_are_started_without_waiting_and_answered_in_order() -> None:
    async with open_bench() as bench:
        client = await bench.connect()
        for correlation in (1, 2, 3):
            client.send(PRODUCE, correlation)
        first, second, third = await bench.stub.until_started(3)
        third.answer(b"c")
        first.answer(b"a")
        second.answer(b"b")
        assert [await client.receive() for _ in range(3)] == [(1, b"a"), (2, b"b"), (3, b"c")]


@scenario
async def test_any_other_request_starts_when_all_earlier_ones_are_answered() -> None:
    """As Kafka, which reads one request at a time: a fetch behind a produce sees what was produced."""
    async with open_bench() as bench:
        client = await bench.connect()
        client.send(PRODUCE, 1)
        client.send(FETCH, 2, version=4)
        client.send(PRODUCE, 3)
        await bench.turn()
        assert [started.correlation for started in bench.stub.started] == [1]
        bench.stub.started[0].answer()
        await bench.stub.until_started(2)
        await bench.turn()
        assert [started.correlation for started in bench.stub.started] == [1, 2]
        bench.stub.started[1].answer()
        (await bench.stub.until_started(3))[2].answer()
        assert [(await client.receive())[0] for _ in range(3)] == [1, 2, 3]


@scenario
async def test_a_parked_fetch_holds_up_its_own_connection_only() -> None:
    async with open_bench() as bench:
        parked, other = await bench.connect(), await bench.connect()
        parked.send(FETCH, 1, version=4)
        parked.send(METADATA, 2, b"behind the fetch")
        await bench.stub.until_started(1)
        other.send(METADATA, 9, b"free")
        assert await other.receive() == (9, b"free")
        assert not parked.reader.at_eof() and parked.reader._buffer == b""  # type: ignore[attr-defined]
        bench.stub.started[0].answer(b"woken")
        assert [await parked.receive(), await parked.receive()] == [(1, b"woken"), (2, b"behind the fetch")]


@scenario
async def test_a_produce_that_waited_can_be_written_to() -> None:
    """Batches get their offsets in place, also one that waited, without a chunk, for an answer to be taken."""
    async with open_bench() as bench:
        client = await bench.connect(receive_buffer=4096)
        client.raw(frame(METADATA, 1, bytes(8 << 20)) + frame(PRODUCE, 2, b"small"))
        await until(lambda: bool(bench.connections.members))
        connection = bench.connection()
        await until(lambda: connection._intake is Intake.BLOCKED and connection.held_bytes == 0)
        assert await client.receive() == (1, bytes(8 << 20))
        (started,) = await bench.stub.until_started(1)
        assert started.body == b"small" and not started.body.readonly
        started.answer()
        assert (await client.receive())[0] == 2


@scenario
async def test_who_sends_much_gives_others_a_turn() -> None:
    """What one connection starts before the loop looks at the others again is bounded, and nothing is forgotten."""
    async with open_bench(Limits(turn_bytes=15_000)) as bench:
        hot = await bench.connect()
        hot.raw(b"".join(frame(PRODUCE, correlation, bytes(1000)) for correlation in range(20)))
        most = before = 0
        while before < 20:
            await asyncio.sleep(0)
            most, before = max(most, len(bench.stub.started) - before), len(bench.stub.started)
        assert most == 3
        for started in bench.stub.started:
            started.answer()
        assert [(await hot.receive())[0] for _ in range(20)] == list(range(20))


@scenario
async def test_a_request_without_an_answer_leaves_no_gap() -> None:
    """acks=0: the next answer on the wire belongs to the next request."""
    async with open_bench() as bench:
        client = await bench.connect()
        client.send(PRODUCE, 1)
        client.send(PRODUCE, 2)
        first, second = await bench.stub.until_started(2)
        second.answer(b"second")
        first.reply.complete(None)
        assert await client.receive() == (2, b"second")


@scenario
async def test_messages_and_futures_are_answers_too() -> None:
    async with open_bench() as bench:
        later: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        bench.stub.router.add(60, lambda ctx, header, request: AwaitedReply(later))
        client = await bench.connect()
        client.send(API_VERSIONS, 1, version=1)
        _, body = await client.receive()
        assert decode(ApiVersionsResponse, 1, body)[0].throttle_time_ms == 7
        bench.ctx.metrics.request(60)
        client.send(60, 2, b"\0\0", version=0)
        await bench.turn()
        later.set_result([b"later"])
        assert await client.receive() == (2, b"\0later")


# ---------------------------------------------------------------------------------------------------------- phases


@scenario
async def test_phases() -> None:
    """Draining starts nothing more, and ends with the last response."""
    async with open_bench() as bench:
        client = await bench.connect()
        client.send(FETCH, 1, version=4)
        (parked,) = await bench.stub.until_started(1)
        connection = bench.connection()
        phases = [connection.phase]
        client.send(FETCH, 2, version=4)
        connection.drain()
        phases.append(connection.phase)
        parked.answer(b"last")
        phases.append(connection.phase)
        connection.drain()
        phases.append(connection.phase)
        assert phases == [Phase.OPEN, Phase.DRAINING, Phase.CLOSED, Phase.CLOSED]
        assert await client.receive() == (1, b"last") and await client.closed()
        assert len(bench.stub.started) == 1


# ------------------------------------------------------------------------------------------------------ hanging up


@pytest.mark.parametrize("size", [-1, -(2**31), 0, 7, 1001, 2**31 - 1])
@scenario
async def test_impossible_sizes_close_before_anything_is_allocated(size: int) -> None:
    async with open_bench(Limits(request_bytes=1000)) as bench:
        client = await bench.connect()
        client.raw(struct.pack(">i", size))
        assert await client.closed()
        assert bench.connections.chunks.kept_bytes <= SMALL
        assert bench.ctx.metrics.malformed == 1


@scenario
async def test_the_largest_allowed_request_is_served() -> None:
    async with open_bench(Limits(request_bytes=5_000_000)) as bench:
        client = await bench.connect()
        empty = len(frame(METADATA, 1)) - 4
        body = random.Random(1).randbytes(5_000_000 - empty)
        client.send(METADATA, 1, body)
        assert await client.receive() == (1, body)


@pytest.mark.parametrize(("key", "version"), [(4, 0), (999, 0), (-1, 0), (METADATA, 99), (METADATA, -1), (FETCH, 3)])
@scenario
async def test_what_is_not_served_closes_the_connection(key: int, version: int) -> None:
    async with open_bench() as bench:
        client = await bench.connect()
        client.raw(struct.pack(">ihhih", 10, key, version, 1, -1))
        assert await client.closed()


@pytest.mark.parametrize("version", [0, 1, 2])
@scenario
async def test_old_produce_is_advertised_but_closes(version: int) -> None:
    async with open_bench() as bench:
        assert (PRODUCE, 0, 13) in bench.stub.router.advertised()
        client = await bench.connect()
        client.send(PRODUCE, 1, version=version)
        assert await client.closed()
        assert bench.stub.started == []


@scenario
async def test_a_too_new_api_versions_is_answered_in_version_0() -> None:
    """KIP-511: error 35, the range of ApiVersions itself, and the connection goes on."""
    async with open_bench() as bench:
        client = await bench.connect()
        client.raw(struct.pack(">ihhih", 20, API_VERSIONS, 100, 5, -1) + bytes(10))
        correlation, body = await client.receive()
        answer, end = decode(ApiVersionsResponse, 0, body)
        assert (correlation, end, answer.error_code) == (5, len(body), ErrorCode.UNSUPPORTED_VERSION)
        (own,) = answer.api_keys
        assert (own.api_key, own.min_version, own.max_version) == (API_VERSIONS, 0, 5)
        client.send(API_VERSIONS, 6, version=0)
        assert (await client.receive())[0] == 6


@scenario
async def test_the_api_versions_answer_never_has_a_flexible_header() -> None:
    async with open_bench() as bench:
        client = await bench.connect()
        client.send(API_VERSIONS, 1, b"\2a\2b\0", version=3)
        _, body = await client.receive()
        assert decode(ApiVersionsResponse, 3, body)[0].throttle_time_ms == 7


@scenario
async def test_a_malformed_request_harms_only_its_connection(caplog: pytest.LogCaptureFixture) -> None:
    async with open_bench() as bench:
        bad, good = await bench.connect(), await bench.connect()
        good.send(FETCH, 1, version=4)
        await bench.stub.until_started(1)
        with caplog.at_level(logging.INFO, "cairnmq.broker"):
            bad.send(API_VERSIONS, 1, b"\xff", version=3)
            assert await bad.closed()
        assert [record.levelname for record in caplog.records] == ["INFO"]
        assert "malformed" in caplog.text
        bench.stub.started[0].answer(b"unharmed")
        assert await good.receive() == (1, b"unharmed")


@scenario
async def test_a_client_id_beyond_the_frame_is_malformed() -> None:
    async with open_bench() as bench:
        client = await bench.connect()
        client.raw(struct.pack(">ihhih", 10, METADATA, 3, 1, 500) + bytes(600))
        assert await client.closed()


@scenario
async def test_a_failing_handler_harms_only_its_connection(caplog: pytest.LogCaptureFixture) -> None:
    async with open_bench() as bench:
        bad, good = await bench.connect(), await bench.connect()
        bad.send(PRODUCE, 1)
        good.send(PRODUCE, 2)
        first, second = sorted(await bench.stub.until_started(2), key=lambda started: started.correlation)
        first.reply.fail(ZeroDivisionError("planted"))
        assert await bad.closed()
        assert "planted" in caplog.text
        second.answer(b"fine")
        assert await good.receive() == (2, b"fine")


@scenario
async def test_a_handler_can_only_hang_up_when_acks_0_failed() -> None:
    async with open_bench() as bench:
        client = await bench.connect()
        client.send(PRODUCE, 1)
        (await bench.stub.until_started(1))[0].reply.fail(CloseConnection("acks=0 and the partition is unknown"))
        assert await client.closed()


@scenario
async def test_malformed_found_later_closes_as_well() -> None:
    async with open_bench() as bench:
        client = await bench.connect()
        client.send(PRODUCE, 1)
        (await bench.stub.until_started(1))[0].reply.fail(Malformed("found in a coroutine"))
        assert await client.closed()
        assert bench.ctx.metrics.malformed == 1


# ------------------------------------------------------------------------------------------------------ the stream


@pytest.mark.parametrize("seed", range(5))
@scenario
async def test_frames_may_be_cut_anywhere(seed: int) -> None:
    choice = random.Random(seed)
    bodies = [choice.randbytes(choice.choice([0, 1, 100, 5_000, 70_000, 1_200_000])) for _ in range(12)]
    stream = b"".join(frame(METADATA, number, body) for number, body in enumerate(bodies))
    async with open_bench() as bench:
        client = await bench.connect()

        async def feed() -> None:
            at = 0
            while at < len(stream):
                step = choice.choice([1, 3, 7, 1000, 65_536, 300_000])
                client.raw(stream[at : at + step])
                at += step
                await client.writer.drain()

        feeding = asyncio.create_task(feed())
        for number, body in enumerate(bodies):
            assert await client.receive() == (number, body)
        await feeding


@scenario
async def test_request_bytes_stay_as_they_were_while_anybody_looks_at_them() -> None:
    """The journal writes them later: no byte may be overwritten by what the client sends next."""
    choice = random.Random(3)
    async with open_bench(Limits(requests=1000, outstanding_bytes=1 << 30)) as bench:
        client = await bench.connect()
        bodies = [choice.randbytes(choice.choice([10, 3_000, 60_000, 400_000])) for _ in range(100)]
        for number, body in enumerate(bodies):
            client.send(PRODUCE, number, body)
            await client.writer.drain()
        kept = list(await bench.stub.until_started(100))
        for started in kept:
            started.answer()
            started.reply.deliver = None
        for _ in range(100):
            await client.receive()
        # the views of answered requests are still held: chunks must not come back into use
        for number in range(200):
            client.send(METADATA, number, bytes(40_000))
            await client.receive()
        assert [bytes(started.body) for started in kept] == bodies


@scenario
async def test_chunks_are_used_again_when_nobody_looks_any_more() -> None:
    async with open_bench() as bench:
        client = await bench.connect()
        for number in range(300):
            client.send(METADATA, number, bytes(50_000))
            await client.receive()
        assert bench.connections.chunks.kept_bytes <= 4 * LARGE


@scenario
async def test_an_idle_connection_holds_no_receive_memory() -> None:
    async with open_bench() as bench:
        client = await bench.connect()
        client.send(METADATA, 1)
        await client.receive()
        assert bench.connection().held_bytes == 0
        client.send(FETCH, 2, version=4)
        (await bench.stub.until_started(1))[0].answer()
        bench.stub.started.clear()
        await client.receive()
        assert bench.connection().held_bytes == 0


@scenario
async def test_half_a_frame_is_kept() -> None:
    async with open_bench() as bench:
        client = await bench.connect()
        whole = frame(METADATA, 1, b"in parts" * 100)
        held = []
        for part in (whole[:2], whole[2:9], whole[9:250], whole[250:400]):
            client.raw(part)
            await bench.turn()
            held.append(bench.connection().held_bytes)
        assert held == [0, 0, 0, SMALL], "who says a few words and then nothing costs next to nothing"
        client.raw(whole[400:])
        assert await client.receive() == (1, b"in parts" * 100)


@scenario
async def test_an_announced_large_frame_costs_nothing_before_it_arrives() -> None:
    """100 MB announced, 4 bytes sent: the memory is reserved, not touched."""
    async with open_bench() as bench:
        before = _resident_bytes()
        client = await bench.connect()
        client.raw(struct.pack(">i", 100_000_000) + bytes(8))
        await bench.turn()
        assert bench.connection().held_bytes == 0
        client.raw(bytes(500))
        await bench.turn()
        assert bench.connection().held_bytes > 100_000_000
        assert _resident_bytes() - before < 20_000_000


def _resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096


# ---------------------------------------------------------------------------------------------------- back-pressure


@scenario
async def test_outstanding_requests_of_a_connection_are_bounded() -> None:
    async with open_bench(Limits(requests=3)) as bench:
        client = await bench.connect()
        for correlation in range(5):
            client.send(PRODUCE, correlation)
        await bench.stub.until_started(3)
        await bench.turn()
        assert len(bench.stub.started) == 3
        bench.stub.started[0].answer()
        await bench.stub.until_started(4)
        await bench.turn()
        assert len(bench.stub.started) == 4


@scenario
async def test_outstanding_bytes_of_a_connection_are_bounded() -> None:
    async with open_bench(Limits(outstanding_bytes=100_000)) as bench:
        client = await bench.connect()
        for correlation in range(20):
            client.send(PRODUCE, correlation, bytes(40_000))
        await bench.stub.until_started(3)
        await bench.turn()
        assert len(bench.stub.started) == 3
        for done in range(20):
            (await bench.stub.until_started(done + 1))[done].answer()
        assert [(await client.receive())[0] for _ in range(20)] == list(range(20))


@scenario
async def test_a_client_that_sends_on_is_stopped_by_its_tcp_window() -> None:
    async with open_bench(Limits(requests=1)) as bench:
        client = await bench.connect()
        for correlation in range(400):
            client.send(PRODUCE, correlation, bytes(100_000))
        await bench.stub.until_started(1)
        for _ in range(5):
            await bench.turn()
        assert bench.connection().held_bytes <= 2 * LARGE
        assert client.writer.transport.get_write_buffer_size() > 10_000_000


@scenario
async def test_request_bytes_in_flight_are_bounded_over_all_connections() -> None:
    async with open_bench(budget=50_000) as bench:
        first, second = await bench.connect(), await bench.connect()
        first.send(PRODUCE, 1, bytes(70_000))
        await bench.stub.until_started(1)
        second.send(PRODUCE, 2, bytes(70_000))
        second_large = await bench.connect()
        second_large.send(PRODUCE, 3, bytes(3_000_000))
        for _ in range(3):
            client = await bench.connect()  # `turn` needs the budget too
            await asyncio.sleep(0)
            client.writer.close()
        assert [started.correlation for started in bench.stub.started] == [1]
        bench.stub.started[0].answer()
        await bench.stub.until_started(2)
        bench.stub.started[1].answer()
        await bench.stub.until_started(3)
        bench.stub.started[2].answer()
        assert sorted([(await c.receive())[0] for c in (first, second, second_large)]) == [1, 2, 3]
        assert bench.ctx.budget.used == 0


@scenario
async def test_a_lost_connection_gives_its_bytes_back_and_abandons_what_it_parked() -> None:
    async with open_bench() as bench:
        client = await bench.connect()
        client.send(FETCH, 7, bytes(1000), version=4)
        (parked,) = await bench.stub.until_started(1)
        large = await bench.connect()
        large.raw(struct.pack(">i", 5_000_000) + bytes(100))
        await bench.turn()
        assert bench.ctx.budget.used < 200_000  # what is only announced is not there yet
        client.writer.transport.abort()
        large.writer.transport.abort()
        await until(lambda: not bench.connections.members)
        assert bench.stub.abandoned == [7]
        assert bench.ctx.budget.used == 0
        parked.answer(b"too late")
        assert bench.ctx.budget.used == 0


@scenario
async def test_what_cannot_be_given_up_holds_its_bytes_until_it_is_done() -> None:
    """A batch on its way to the journal stays in memory, whether its producer lives or not."""
    async with open_bench() as bench:
        client = await bench.connect()
        client.send(PRODUCE, 7, bytes(1000))
        (staged,) = await bench.stub.until_started(1)
        staged.reply.on_abandon = None
        client.writer.transport.abort()
        await until(lambda: not bench.connections.members)
        assert bench.ctx.budget.used > 1000
        staged.answer(b"nobody hears it")
        assert bench.ctx.budget.used == 0


@scenario
async def test_large_requests_that_wait_for_one_another_are_let_through_one_by_one() -> None:
    """Each has paid for a part and none can have the rest: the one that asked first may exceed the allowance."""
    async with open_bench(budget=3_000_000) as bench:
        clients = [await bench.connect() for _ in range(4)]
        for number, client in enumerate(clients):
            client.send(PRODUCE, number, bytes(2_500_000))
        for count in range(1, 5):
            started = await bench.stub.until_started(count)
            for _ in range(20):  # time for the others to take what they may
                await asyncio.sleep(0.005)
            assert bench.ctx.budget.used < 3_000_000 + LARGE + 2_500_000, "the allowance, a part, and one request"
            started[count - 1].answer()
        assert sorted([(await client.receive())[0] for client in clients]) == [0, 1, 2, 3]
        assert bench.ctx.budget.used == 0


@scenario
async def test_no_more_of_a_large_request_is_read_than_is_paid_for() -> None:
    """The system may hold megabytes of it, and would hand them over at once."""
    async with open_bench() as bench:
        client = await bench.connect()
        client.raw(struct.pack(">i", 20_000_000) + bytes(1000))
        await until(lambda: bench.ctx.budget.used)
        assert len(bench.connection().get_buffer(-1)) <= bench.ctx.budget.used < 200_000
        assert bench.connection().held_bytes > 20_000_000


@scenario
async def test_a_part_of_a_large_request_waits_where_it_is() -> None:
    """A copy of it was in memory beside it, and left a hole of its size in the heap."""
    async with open_bench(budget=400_000) as bench:
        waiting, privileged, small = [await bench.connect() for _ in range(3)]
        body = bytes(range(250)) * 20_000
        whole = {client: frame(PRODUCE, number, body[number:]) for number, client in enumerate((waiting, privileged))}
        for client in whole:
            used = bench.ctx.budget.used
            client.raw(whole[client][:1000])
            await until(lambda: bench.ctx.budget.used > used)  # noqa: B023
        small.send(FETCH, 9, bytes(300_000), version=4)
        await bench.stub.until_started(1)
        assert bench.ctx.budget.full
        privileged.raw(whole[privileged][1000:200_000])
        await until(lambda: bench.ctx.budget._privileged is not None)
        waiting.raw(whole[waiting][1000:200_000])
        await until(lambda: bench.ctx.budget.wanted)
        assert len(whole[waiting]) in [each.held_bytes for each in bench.connections.members]
        for client in whole:
            client.raw(whole[client][200_000:])
        started = await bench.stub.until_started(2)
        for one in started:
            one.answer()
        (await bench.stub.until_started(3))[2].answer()
        assert [bytes(one.body) for one in started[1:]] == [body[1:], body]


@scenario
async def test_half_a_large_request_is_cut_off_when_others_wait_for_its_memory() -> None:
    async with open_bench(budget=60_000) as bench:
        slow, other = await bench.connect(), await bench.connect()
        slow.raw(struct.pack(">i", 5_000_000) + bytes(100))
        await until(lambda: bench.ctx.budget.full)
        bench.connections.sweep(asyncio.get_running_loop().time())
        other.send(METADATA, 1, bytes(100_000))
        await until(lambda: bench.ctx.budget.wanted)
        bench.connections.sweep(asyncio.get_running_loop().time())  # the first one only looks
        slow.raw(b"x")
        await asyncio.sleep(0.05)
        bench.connections.sweep(asyncio.get_running_loop().time())
        assert await slow.closed()
        assert await other.receive() == (1, bytes(100_000))


@scenario
async def test_halves_of_small_requests_count_and_those_that_wait_hold_what_came() -> None:
    half = struct.pack(">i", 10_000) + bytes(300)
    async with open_bench(budget=SMALL + 1) as bench:
        slow = [await bench.connect() for _ in range(4)]
        for client in slow:
            client.raw(half)
        await until(lambda: bench.ctx.budget.full and bench.ctx.budget.wanted)
        await until(lambda: sum(each.held_bytes > 0 for each in bench.connections.members) == 2)
        assert bench.ctx.budget.used == 2 * SMALL
        for _ in range(2):  # the first one only looks
            bench.connections.sweep(asyncio.get_running_loop().time())
        await until(lambda: len(bench.connections.members) == 2)
        other = await bench.connect()
        other.send(METADATA, 1, bytes(100))
        for _ in range(3):
            bench.connections.sweep(asyncio.get_running_loop().time())
            await asyncio.sleep(0.05)
        assert await other.receive() == (1, bytes(100))


@scenario
async def test_half_a_small_request_that_has_to_wait_goes_on() -> None:
    async with open_bench(budget=SMALL) as bench:
        first, second = await bench.connect(), await bench.connect()
        body = bytes(range(250)) * 8
        whole = frame(METADATA, 7, body)
        first.raw(whole[:400])
        await until(lambda: bench.ctx.budget.full)
        second.raw(whole[:400])
        await until(lambda: bench.ctx.budget.wanted)
        second.raw(whole[400:])
        first.raw(whole[400:])
        assert await first.receive() == (7, body)
        assert await second.receive() == (7, body)
        await until(lambda: bench.ctx.budget.used == 0)


@scenario
async def test_what_requests_become_is_bounded_and_producers_do_not_wait_for_it() -> None:
    """A request of 100 KB may be 2.4 MB of objects: the next such one waits, a Produce or a small one does not."""
    async with open_bench(budget=500_000) as bench:
        wide = [await bench.connect() for _ in range(3)]
        for number, client in enumerate(wide):
            client.send(FETCH, number, bytes(100_000), version=4)
        await bench.stub.until_started(1)
        await until(lambda: bench.ctx.objects.wanted)
        other = await bench.connect()
        other.send(METADATA, 1, bytes(1000))
        assert (await other.receive())[0] == 1
        producer = await bench.connect()
        producer.send(PRODUCE, 9, bytes(100_000))
        (_, produced) = await bench.stub.until_started(2)
        assert produced.correlation == 9
        produced.answer()
        assert (await producer.receive())[0] == 9
        wide.pop().writer.transport.abort()  # one that waits
        bench.stub.started[0].answer()
        (_, _, second) = await bench.stub.until_started(3)
        assert 500_000 < bench.ctx.objects.used < 700_000, "parked, it is less"
        second.answer()
        assert [(await client.receive())[0] for client in wide] == [0, 1]
        await until(lambda: not bench.ctx.budget.used)
        assert bench.ctx.objects.used == 0 and not bench.ctx.objects.wanted


@scenario
async def test_a_coroutine_holds_memory_for_its_objects_until_it_ends() -> None:
    """A parked fetch needs only a quarter of it; a coroutine still works on all of them."""
    async with open_bench(budget=500_000) as bench:
        later: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        bench.stub.router.add_raw(60, lambda ctx, header, frame, position: AwaitedReply(later))
        bench.ctx.metrics.request(60)
        client = await bench.connect()
        client.send(60, 1, bytes(10_000), version=0)
        await until(lambda: bench.ctx.objects.used)
        held = bench.ctx.objects.used
        assert held >= 24 * 10_000
        await asyncio.sleep(0)
        assert bench.ctx.objects.used == held
        later.set_result([b"done"])
        await client.receive()
        assert bench.ctx.objects.used == 0


@scenario
async def test_a_parked_join_does_not_hold_what_other_members_need() -> None:
    """It waits for them; if its bytes counted meanwhile, theirs could not be read."""
    async with open_bench(budget=10_000) as bench:
        bench.stub.router.add_raw(JOIN_GROUP, bench.stub._park)
        bench.ctx.metrics.request(JOIN_GROUP)
        clients = [await bench.connect() for _ in range(5)]
        for number, client in enumerate(clients):
            client.send(JOIN_GROUP, number, bytes(5_000))
        for parked in await bench.stub.until_started(5):
            parked.answer()
        assert [(await client.receive())[0] for client in clients] == [0, 1, 2, 3, 4]
        assert bench.ctx.budget.used == 0


@scenario
async def test_answers_that_nobody_takes_are_bounded_over_all_connections() -> None:
    """At the allowance, requests with large answers wait, others do not; slow readers are cut off, and all goes on."""
    answer = bytes(2_000_000)
    async with open_bench(Limits(stall_seconds=60), answers=3_000_000) as bench:
        slow = [await bench.connect(receive_buffer=4096) for _ in range(5)]
        for client in slow:
            for correlation in range(10):
                client.send(METADATA, correlation, answer)
        other = await bench.connect()
        await until(lambda: bench.ctx.answers.full)
        for _ in range(20):
            await asyncio.sleep(0.01)
        assert bench.ctx.answers.used < 3_000_000 + 2 * 2_000_000
        other.send(API_VERSIONS, 1, version=1)
        assert (await other.receive())[0] == 1
        other.send(METADATA, 2, b"me")
        await until(lambda: bench.ctx.answers.wanted)
        now = asyncio.get_running_loop().time()
        for later in range(0, 20, 2):
            bench.connections.sweep(now + later)
            await asyncio.sleep(0.01)
        assert await other.receive() == (2, b"me")
        for client in slow:
            client.writer.transport.abort()
        await until(lambda: len(bench.connections.members) == 1)
        assert bench.ctx.answers.used == 0 and bench.ctx.budget.used == 0


@scenario
async def test_an_answer_of_thousands_of_pieces() -> None:
    """More than one sendmsg takes (IOV_MAX)."""
    async with open_bench() as bench:
        client = await bench.connect()
        client.send(FETCH, 1, version=4)
        (parked,) = await bench.stub.until_started(1)
        pieces: list[Buffer] = [memoryview(bytes([n % 251]) * (n % 1000)) for n in range(6000)]
        parked.reply.complete(pieces)
        assert await client.receive() == (1, b"".join(pieces))


@pytest.mark.parametrize(("size", "send_buffer"), [(100_000, 1 << 20), (400_000, 4096)])
@scenario
async def test_a_large_answer_holds_its_chunk_no_longer_than_it_must(size: int, send_buffer: int) -> None:
    """It leaves at once; of what a slow reader has not taken yet the bytes are held, not the chunk they lie in."""
    async with open_bench() as bench:
        client = await bench.connect(receive_buffer=4096)
        client.send(FETCH, 1, version=4)
        (parked,) = await bench.stub.until_started(1)
        transport = bench.connection()._transport
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        chunk = bytearray(LARGE)
        parked.reply.complete([memoryview(chunk)[:size]])
        parked.reply.response = None
        assert (transport.get_write_buffer_size() > 0) == (send_buffer < size)
        assert unseen(chunk)
        assert await client.receive() == (1, bytes(size))


@scenario
async def test_a_slow_reader_is_bounded_in_memory() -> None:
    """Its answers do not leave: no further request of it is started, whatever it sends."""
    answer = bytes(1_000_000)
    async with open_bench() as bench:
        client = await bench.connect(receive_buffer=4096)
        for correlation in range(100):
            client.send(METADATA, correlation, answer)
        for _ in range(5):
            await bench.turn()
        connection = bench.connection()
        assert connection._transport is not None
        assert connection._transport.get_write_buffer_size() < 4_000_000
        assert bench.ctx.metrics.bytes_out < 12_000_000
        for correlation in range(100):
            assert (await client.receive())[0] == correlation


async def connect_slow_reader(bench: Bench) -> Client:
    """It asks for more than the system holds for it."""
    client = await bench.connect(receive_buffer=4096)
    for correlation in range(40):
        client.send(METADATA, correlation, bytes(1_000_000))
    return client


async def cut_off_after_a_minute(bench: Bench) -> None:
    now = asyncio.get_running_loop().time()
    bench.connections.sweep(now)
    bench.connections.sweep(now + 59)
    assert len(bench.connections.members) == 1
    bench.connections.sweep(now + 61)
    await until(lambda: not bench.connections.members)


@scenario
async def test_a_reader_that_stopped_is_cut_off() -> None:
    async with open_bench(Limits(stall_seconds=60, idle_seconds=1e9)) as bench:
        await connect_slow_reader(bench)
        for _ in range(5):
            await bench.turn()
        await cut_off_after_a_minute(bench)


@scenario
async def test_a_reader_that_stopped_is_cut_off_also_when_it_is_being_closed() -> None:
    """A frame of no sense makes us hang up; what it is still owed must not be held for as long as it likes."""
    async with open_bench(Limits(stall_seconds=60, idle_seconds=1e9)) as bench:
        client = await connect_slow_reader(bench)
        client.raw(struct.pack(">i", -1))
        for _ in range(5):
            await bench.turn()
        bench.connection().close("as if its last frame had been looked at")
        assert bench.ctx.answers.used > 0
        await cut_off_after_a_minute(bench)
        assert bench.ctx.answers.used == 0


@scenario
async def test_a_reader_that_moves_on_is_kept() -> None:
    async with open_bench(Limits(stall_seconds=60, idle_seconds=1e9)) as bench:
        client = await connect_slow_reader(bench)
        now = asyncio.get_running_loop().time()
        for step in range(1, 6):
            await client.receive()
            await bench.turn()
            bench.connections.sweep(now + 50 * step)
        assert len(bench.connections.members) == 1


# ------------------------------------------------------------------------------------------------------------ idle


@scenario
async def test_idle_connections_are_reaped_also_those_that_never_spoke() -> None:
    async with open_bench(Limits(idle_seconds=600)) as bench:
        silent, half, spoke = await bench.connect(), await bench.connect(), await bench.connect()
        half.raw(frame(METADATA, 1)[:6])
        spoke.send(METADATA, 1)
        await spoke.receive()
        now = asyncio.get_running_loop().time()
        bench.connections.sweep(now + 599)
        assert len(bench.connections.members) == 3
        bench.connections.sweep(now + 601)
        assert [await client.closed() for client in (silent, half, spoke)] == [True] * 3


@scenario
async def test_a_parked_request_is_not_idleness() -> None:
    async with open_bench(Limits(idle_seconds=600)) as bench:
        client = await bench.connect()
        client.send(FETCH, 1, version=4)
        (parked,) = await bench.stub.until_started(1)
        bench.connections.sweep(asyncio.get_running_loop().time() + 10_000)
        parked.answer(b"still here")
        assert await client.receive() == (1, b"still here")
