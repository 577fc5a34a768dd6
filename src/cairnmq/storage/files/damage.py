"""Damage: stored bytes that do not read back, with the file, the position and the offsets that are affected."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from msgspec import Struct

from cairnmq.codec.compression import CodecMissing, Undecodable
from cairnmq.errors import Corrupt, Fault
from cairnmq.storage.files.disk import Unreadable

T = TypeVar("T")

KEPT = 100  # places named on the status page; the counter knows of all


class Place(Struct, frozen=True, array_like=True):
    """`queue` is empty and the offsets are -1 where they are not known; `end` is behind the last one affected."""

    file: str
    position: int
    queue: str = ""
    first: int = -1
    end: int = -1
    why: str = ""  # instead of the position, where that says nothing

    def __str__(self) -> str:
        text = f"{self.file} is damaged at {self.position}" if self.position >= 0 else f"{self.file} is lost"
        text = f"{self.file} is wrong, {self.why}" if self.why else text
        if self.first < 0:
            return text + (f" (queue {self.queue})" if self.queue else "")
        last = f"s {self.first} to {self.end - 1}" if self.end > self.first + 1 else f" {self.first}"
        more = " and those behind it" if self.end < 0 else ""
        return f"{text}: offset{last}{more} of queue {self.queue} cannot be read"


class Damage(Corrupt):
    """A read that found some. `place.queue` is what whoever reads calls the queue."""

    def __init__(self, place: Place, why: str = "") -> None:
        super().__init__(f"{place} ({why})" if why else str(place))
        self.place = place


class ReadFailure(Struct, frozen=True, gc=False):
    """What went wrong with a read, for those who hear of it later. Never the exception itself: it holds the frames that
    it came through, and with them whatever was read."""

    text: str
    place: Place | None = None
    is_defect: bool = False  # neither stored bytes nor a disk are the cause


def failure_of(error: Exception) -> ReadFailure:
    if isinstance(error, Fault | OSError):
        return ReadFailure(str(error), error.place if isinstance(error, Damage) else None)
    return ReadFailure(repr(error), is_defect=True)


def frameless(call: Callable[..., T], *args: object) -> T:
    """What the call returns or, without the frames that it came through and what they hold, what it raises: for calls
    on another thread, whose failures wait until somebody looks at them."""
    try:
        return call(*args)
    except (Fault, OSError, Undecodable, CodecMissing) as error:
        error.__context__ = error.__cause__ = None
        failure = error.with_traceback(None)
    try:
        raise failure
    finally:
        del failure  # it knows this frame


def place_of(error: Damage | Unreadable, queue: str) -> Place:
    return error.place if isinstance(error, Damage) else Place(str(error.filename), 0, queue)


class DamageList:
    """What was found since the start, each place once; bounded."""

    def __init__(self, places: Iterable[Place] = ()) -> None:
        self.count = 0
        self.places: dict[tuple[str, int, str], Place] = {}
        for place in places:
            self.add(place)

    def add(self, place: Place) -> bool:
        """False: it was known."""
        key = place.file, place.position, place.queue
        known = key in self.places
        if not known:
            self.count += 1
        self.places.pop(key, None)
        self.places[key] = place
        while len(self.places) > KEPT:
            del self.places[next(iter(self.places))]
        return not known

    def repaired(self, file: str) -> None:
        """What was wrong with this file is no more."""
        for key in [key for key in self.places if key[0] == file]:
            del self.places[key]
