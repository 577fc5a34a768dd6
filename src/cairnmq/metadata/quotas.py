"""Client quotas: whom they are for, which there are, how they are stored and found. Pure.

They are kept and shown; nothing limits clients by them yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_address
from math import isfinite

import msgspec
from msgspec import Struct

from cairnmq.errors import ErrorCode, Refusal
from cairnmq.metadata.image import Image, QuotaEntity
from cairnmq.metadata.keys import level, unlevel
from cairnmq.metadata.store import Delete, Op, Put
from cairnmq.settings.definition import INT32_MAX, INT64_MAX, nearest

QUOTAS = "quotas/"

USER, CLIENT_ID, IP = "user", "client-id", "ip"
ENTITY_TYPES = (USER, CLIENT_ID, IP)
EXACT, DEFAULT, ANY = 0, 1, 2  # Kafka's numbers of what a filter matches

# Name -> the largest value, or None for one that may be a fraction.
_FOR_CLIENTS: dict[str, int | None] = {
    "producer_byte_rate": INT64_MAX,
    "consumer_byte_rate": INT64_MAX,
    "request_percentage": None,
    "controller_mutation_rate": None,
}
_FOR_ADDRESSES: dict[str, int | None] = {"connection_creation_rate": INT32_MAX}


class QuotaChange(Struct, frozen=True):
    """What one entry of a request asks for; a value of None removes."""

    entity: tuple[tuple[str, str | None], ...]  # as sent: in any order, a type possibly twice
    values: tuple[tuple[str, float | None], ...]


class Match(Struct, frozen=True):
    """One component of a filter: entities that have `type`, exactly `name`, as the default, or at all."""

    type: str
    kind: int
    name: str | None = None


def alter_quotas(image: Image, changes: Sequence[QuotaChange]) -> tuple[list[Op], list[Refusal | None]]:
    """Operations for what is allowed, and for each change why it is not."""
    ops: list[Op] = []
    answers: list[Refusal | None] = []
    entities = [tuple(sorted(change.entity, key=lambda part: part[0])) for change in changes]
    named = Counter(entities)
    for entity, change in zip(entities, changes, strict=True):
        if named[entity] > 1:
            answers.append(_invalid("The same entity is changed twice in one request"))
            continue
        decided = _altered(image.quotas.get(entity, {}), entity, change)
        answers.append(decided if isinstance(decided, Refusal) else None)
        if not isinstance(decided, Refusal) and decided != image.quotas.get(entity, {}):
            key = QUOTAS + _encoded(entity)
            ops.append(Put(key, msgspec.json.encode(decided)) if decided else Delete(key))
    return ops, answers


def _altered(now: Mapping[str, float], entity: QuotaEntity, change: QuotaChange) -> dict[str, float] | Refusal:
    refusal = _check_entity(entity)
    if refusal is not None:
        return refusal
    values = dict(now)
    for name, value in change.values:
        refusal = _check_value(_names(entity), name, value)
        if refusal is not None:
            return refusal
        if value is None:
            values.pop(name, None)
        else:
            values[name] = value
    if len({name for name, _ in change.values}) < len(change.values):
        return _invalid("A quota is changed twice in one request")
    return values


def _check_entity(entity: QuotaEntity) -> Refusal | None:
    types = [kind for kind, _ in entity]
    if not types:
        return _invalid("A quota needs a user, a client-id or an ip")
    if len(set(types)) < len(types):
        return _invalid(f"An entity cannot have two of a type: {', '.join(types)}")
    for kind, name in entity:
        if kind not in ENTITY_TYPES:
            return _invalid(f"Unknown entity type {kind!r}; there are {', '.join(ENTITY_TYPES)}")
        if name == "":
            return _invalid(f"The name of a {kind} cannot be empty; null is the default of all")
        if kind == IP and name is not None and not _is_address(name):
            return _invalid(f"{name!r} is not an IP address")
    if IP in types and len(types) > 1:
        return _invalid("A quota for an ip cannot also be for a user or a client-id")
    return None


def _check_value(names: Mapping[str, int | None], name: str, value: float | None) -> Refusal | None:
    if name not in names:
        return _invalid(f"There is no quota {name!r} for such an entity{nearest(name, names)}")
    if value is None:
        return None
    if not isfinite(value) or value <= 0:
        return _invalid(f"{name} must be greater than 0")
    largest = names[name]
    if largest is not None and (value > largest or value != int(value)):
        return _invalid(f"{name} must be a whole number up to {largest}")
    return None


def _names(entity: QuotaEntity) -> dict[str, int | None]:
    return _FOR_ADDRESSES if entity[0][0] == IP else _FOR_CLIENTS


def find_quotas(
    image: Image, matches: Sequence[Match], strict: bool
) -> list[tuple[QuotaEntity, dict[str, float]]] | Refusal:
    """Quotas of entities that have every component of a filter; `strict`: and no other."""
    refusal = _check_filter(matches)
    if refusal is not None:
        return refusal
    return [
        (entity, values)
        for entity, values in image.quotas.items()
        if all(_fits(dict(entity), match) for match in matches) and not (strict and len(entity) > len(matches))
    ]


def _check_filter(matches: Sequence[Match]) -> Refusal | None:
    types = [match.type for match in matches]
    for match in matches:
        if match.type not in ENTITY_TYPES:
            return Refusal(ErrorCode.UNSUPPORTED_VERSION, f"There are no quotas for the entity type {match.type!r}")
        if types.count(match.type) > 1:
            return _invalid(f"The entity type {match.type} occurs twice")
        if match.kind not in (EXACT, DEFAULT, ANY):
            return _invalid(f"Unknown match type {match.kind}")
        if (match.kind == EXACT) != (match.name is not None):
            return _invalid("An exact match needs a name, and only an exact match may have one")
    if IP in types and len(types) > 1:
        return _invalid("A filter for an ip cannot also name a user or a client-id")
    return None


def _fits(entity: dict[str, str | None], match: Match) -> bool:
    return match.type in entity and (match.kind == ANY or entity[match.type] == match.name)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _invalid(why: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REQUEST, why)


def _encoded(entity: QuotaEntity) -> str:
    """`client-id:reader,user` is the client id "reader" of any user without a quota of its own."""
    return ",".join(kind if name is None else f"{kind}:{level(name)}" for kind, name in entity)


def entity_of(key: str) -> QuotaEntity:
    """Whom a stored quota is for."""
    return tuple(_parts(key.removeprefix(QUOTAS).split(",")))


def _parts(texts: Iterable[str]) -> Iterator[tuple[str, str | None]]:
    for text in texts:
        kind, colon, name = text.partition(":")
        yield kind, unlevel(name) if colon else None


def decode_quotas(value: bytes) -> dict[str, float]:
    """Stored quotas of an entity."""
    return msgspec.json.decode(value, type=dict[str, float])
