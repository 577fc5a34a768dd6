"""Which link of a broker counts (R26): the one with the highest broker epoch and number. A retry over a new link never
meets its own late duplicate on an older one."""

from __future__ import annotations

from typing import Generic, TypeVar

L = TypeVar("L")

_KNOWN_MAX = 1024


class TooManyBrokers(Exception):
    """More brokers and purposes than any cluster has."""


class LinkNumbers(Generic[L]):
    """The newest link of each broker and purpose. What a closed link had is remembered: it must not come back."""

    def __init__(self, known_max: int = _KNOWN_MAX) -> None:
        self._known_max = known_max
        self._newest: dict[tuple[int, str], tuple[int, int]] = {}
        self.open: dict[tuple[int, str], L] = {}

    def admit(self, broker: int, purpose: str, epoch: int, number: int, link: L) -> tuple[bool, L | None]:
        """Whether this link is the newest; and the link that it replaces, which the caller closes."""
        key = (broker, purpose)
        newest = self._newest.get(key)
        if newest is None and len(self._newest) >= self._known_max:
            raise TooManyBrokers
        if newest is not None and (epoch, number) <= newest:
            return False, None
        self._newest[key] = (epoch, number)
        replaced = self.open.get(key)
        self.open[key] = link
        return True, replaced

    def ended(self, broker: int, purpose: str, link: L) -> None:
        """It is closed; a later one may have taken its place before."""
        if self.open.get((broker, purpose)) is link:
            del self.open[broker, purpose]
