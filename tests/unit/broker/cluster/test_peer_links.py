"""One link of each purpose to each broker, where it is needed."""

from __future__ import annotations

import socket

from cairnmq.broker.cluster.peer_links import PeerLinks
from cairnmq.broker.internal.answer import InstallAnswer
from cairnmq.broker.internal.link import Link
from cairnmq.broker.internal.listener import InternalListener
from cairnmq.broker.internal.peer import Peer
from cairnmq.broker.machine import MACHINE
from cairnmq.broker.options import Address
from cairnmq.wire.internal import InstallAsk
from cairnmq.wire.internal_handshake import Identity
from cairnmq.wire.internal_transactions import ControlRequest, ControlResponse, Entered
from unit.broker.internal.link_rig import FOLLOWER, nothing
from unit.broker.rig import scenario, until


async def no_install(peer: Peer, asked: InstallAsk) -> InstallAnswer:
    raise AssertionError("nobody asks for one")


async def entered(peer: Peer, asked: ControlRequest) -> ControlResponse:
    return Entered(0)


async def listen(broker: int) -> tuple[InternalListener, Address]:
    listener = InternalListener(
        lambda: Identity("cluster-a", broker, 11), None, nothing, MACHINE, install=no_install, control=entered
    )
    bound = socket.create_server(("127.0.0.1", 0))
    await listener.open(bound)
    return listener, Address(*bound.getsockname())


@scenario
async def test_links_come_when_they_are_needed_and_all_end() -> None:
    (one, first), (three, third) = await listen(1), await listen(3)
    peers, told = {1: first, 3: third}, dict[str, dict[int, Link]](data={}, control={})
    links = PeerLinks(
        lambda: FOLLOWER,
        None,
        MACHINE,
        on_data=lambda broker, link: told["data"].update({broker: link}),
        on_control=lambda broker, link: told["control"].update({broker: link}),
        on_refused=lambda broker: None,
    )
    links.want(peers, control=False, installers=())
    await until(lambda: len(told["data"]) == 2)
    assert not links.control.links and links.install(3) is None
    links.want(peers, control=True, installers=(3, 9))
    await until(lambda: len(told["control"]) == 2 and links.install(3) is not None)
    assert links.install(1) is None and links.install(9) is None
    assert links.control.links == told["control"] and links.data.links == told["data"]
    links.want_installs(peers, ())
    assert links.install(3) is None
    links.want({1: first}, control=True, installers=())
    assert [*links.data.links] == [*links.control.links] == [1]
    await links.close()
    assert all(link.closed.done() for kind in told.values() for link in kind.values())
    links.want(peers, control=True, installers=(1,))
    assert not links.data.links and links.install(1) is None
    for listener in (one, three):
        await listener.close()
