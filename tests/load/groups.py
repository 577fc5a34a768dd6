"""Load on consumer groups: many small groups at rest, and one large group that rebalances. Prints what it measures.

    python tests/load/groups.py [--groups 1000] [--members 10] [--seconds 30] [--large 500] [--partitions 5000]

Members speak the raw protocol, each on a connection of its own. The broker is a process of its own: its CPU time is
printed. Aims: 10,000 members at 3 s heartbeats under 15 % of a core, a rebalance of 500 members under 3 s.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

import psutil
import uvloop
from msgspec import Struct

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from broker_process import Broker
from cairnmq.client.admin import NewTopic
from cairnmq.client.blocking import Client
from cairnmq.wire.codec import encode
from cairnmq.wire.messages import ConsumerProtocolAssignment
from load.wire_member import Assign, WireMember, connect, form, subscription

HEARTBEAT_SECONDS = 3.0
CONNECTING_AT_ONCE = 200
FORMING_AT_ONCE = 20
SLICES = 100  # heartbeats of a second are spread, as they are among real clients


class Rest(Struct, frozen=True):
    """Many groups that only send heartbeats."""

    members: int
    heartbeats_per_second: float
    cpu_share: float
    cpu_us_per_heartbeat: float
    resident_mb: float


class Rebalance(Struct, frozen=True):
    """One large group: the first generation, and one after a member came."""

    members: int
    partitions: int
    first_seconds: float
    again_seconds: float
    cpu_seconds: float


def assigner(topic: str, partitions: int) -> Assign:
    """Range: neighbouring partitions to each member."""

    def assign(members: list[str]) -> dict[str, bytes]:
        share, more = divmod(partitions, len(members))
        given, first = {}, 0
        for number, member in enumerate(members):
            count = share + (number < more)
            topics = [
                ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=list(range(first, first + count)))
            ]
            message = ConsumerProtocolAssignment(assigned_partitions=topics)
            given[member] = b"\x00\x01" + b"".join(encode(message, 1))
            first += count
        return given

    return assign


async def join_all(bootstrap: str, groups: int, members: int) -> list[WireMember]:
    metadata, assign = subscription(["orders"]), assigner("orders", 12)
    gate, forming = asyncio.Semaphore(CONNECTING_AT_ONCE), asyncio.Semaphore(FORMING_AT_ONCE)

    async def one(group: str) -> WireMember:
        async with gate:
            return WireMember(await connect(bootstrap), group, metadata, assign)

    everyone = await asyncio.gather(*(one(f"group-{n % groups}") for n in range(groups * members)))
    by_group: dict[str, list[WireMember]] = {}
    for member in everyone:
        by_group.setdefault(member.group, []).append(member)

    async def settle(here: list[WireMember]) -> None:
        async with forming:
            await form(here)

    await asyncio.gather(*(settle(here) for here in by_group.values()))
    return list(everyone)


async def beat(members: list[WireMember], seconds: float) -> None:
    """Every member once in HEARTBEAT_SECONDS, evenly spread."""
    slices = int(SLICES * HEARTBEAT_SECONDS)
    started = time.monotonic()
    for turn in range(int(seconds * SLICES)):
        for member in members[turn % slices :: slices]:
            member.heartbeat()
        await asyncio.sleep(max(0.0, started + (turn + 1) / SLICES - time.monotonic()))


async def at_rest(broker: Broker, groups: int, members: int, seconds: float) -> Rest:
    everyone = await join_all(broker.bootstrap, groups, members)
    await beat(everyone, min(HEARTBEAT_SECONDS, seconds))
    process = psutil.Process(broker.pid)
    sent = sum(member.heartbeats for member in everyone)
    cpu, started = sum(process.cpu_times()[:2]), time.monotonic()
    await beat(everyone, seconds)
    elapsed = time.monotonic() - started
    cpu = sum(process.cpu_times()[:2]) - cpu
    sent = sum(member.heartbeats for member in everyone) - sent
    wrong = {(member.group, error) for member in everyone for error in member.errors}
    assert not wrong, f"heartbeats were refused: {sorted(wrong)[:5]}"
    assert not any(member.rebalancing for member in everyone), "a group at rest does not rebalance"
    found = Rest(len(everyone), sent / elapsed, cpu / elapsed, cpu / sent * 1e6, process.memory_info().rss / 2**20)
    for member in everyone:
        member.wire.close()
    return found


async def large(broker: Broker, members: int, partitions: int) -> Rebalance:
    process = psutil.Process(broker.pid)
    cpu = sum(process.cpu_times()[:2])
    metadata, assign = subscription(["many"]), assigner("many", partitions)
    wires = [await connect(broker.bootstrap) for _ in range(members + 1)]
    everyone = [WireMember(wire, "large", metadata, assign) for wire in wires[:members]]
    started = time.monotonic()
    await form(everyone)
    first = time.monotonic() - started
    late = WireMember(wires[members], "large", metadata, assign)
    started = time.monotonic()
    everyone.append(late)
    # A real client hears of the rebalance by its next heartbeat; here those come at once: the broker's share counts.
    await form(everyone, fresh=[late])
    again = time.monotonic() - started
    assert len({member.generation for member in everyone}) == 1, "all are in one generation"
    assert sum(member.leads for member in everyone) == 1
    assert len({member.assignment for member in everyone}) == len(everyone), "nobody shares a partition"
    cpu = sum(process.cpu_times()[:2]) - cpu
    for member in everyone:
        member.wire.close()
    return Rebalance(members, partitions, first, again, cpu)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--members", type=int, default=10, help="of each group")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--large", type=int, default=500, help="members of the large group")
    parser.add_argument("--partitions", type=int, default=5000, help="of the large group's topic")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cairn-groups-") as directory:
        broker = Broker(Path(directory), settings={"group.initial.rebalance.delay.ms": "0"}).start()
        try:
            with Client.connect(broker.bootstrap) as client:
                client.create_topics([NewTopic("orders", 12), NewTopic("many", chosen.partitions)])
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                moved = runner.run(large(broker, chosen.large, chosen.partitions))
                print(
                    f"one group of {moved.members} members on {moved.partitions} partitions: formed in "
                    f"{moved.first_seconds:.2f} s, rebalance when one more came {moved.again_seconds:.2f} s, "
                    f"broker {moved.cpu_seconds:.2f} CPU s for both",
                    flush=True,
                )
                rest = runner.run(at_rest(broker, chosen.groups, chosen.members, chosen.seconds))
                print(
                    f"{chosen.groups} groups x {chosen.members} members at rest: {rest.heartbeats_per_second:.0f} "
                    f"heartbeats/s, broker {rest.cpu_share:.1%} of a core ({rest.cpu_us_per_heartbeat:.0f} us each), "
                    f"{rest.resident_mb:.0f} MB",
                    flush=True,
                )
        finally:
            broker.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
