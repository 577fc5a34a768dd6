"""Defects of the shells of a cluster's brokers, for the simulation of three whole brokers to find."""

from __future__ import annotations

import asyncio

import pytest

from cairnmq.broker.internal.dialer import Dialer
from cairnmq.broker.internal.link import Link


def links_are_not_opened_again(patch: pytest.MonkeyPatch) -> None:
    """To a broker that was there once."""
    use = Dialer._use

    async def once(dialer: Dialer, broker: int, link: Link) -> None:
        await use(dialer, broker, link)
        await asyncio.get_running_loop().create_future()

    patch.setattr(Dialer, "_use", once)
