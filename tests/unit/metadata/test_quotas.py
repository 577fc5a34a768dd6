"""Quotas: who may have which, how they are stored, who is found."""

from __future__ import annotations

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairnmq.errors import ErrorCode, Refusal
from cairnmq.metadata.image import Image, QuotaEntity
from cairnmq.metadata.quotas import (
    ANY,
    DEFAULT,
    EXACT,
    QUOTAS,
    Match,
    QuotaChange,
    alter_quotas,
    decode_quotas,
    entity_of,
    find_quotas,
)
from cairnmq.metadata.store import Delete, Put

RATE = "producer_byte_rate"
ALICE: QuotaEntity = (("user", "alice"),)
NAMES = st.none() | st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


def change(entity: QuotaEntity, **values: float | None) -> QuotaChange:
    return QuotaChange(entity, tuple(values.items()))


def only(image: Image, wanted: QuotaChange) -> Refusal | None:
    (answer,) = alter_quotas(image, [wanted])[1]
    return answer


@given(NAMES, NAMES)
def test_stored_under_one_key_whatever_the_order_and_read_back(user: str | None, client: str | None) -> None:
    forward = change((("user", user), ("client-id", client)), producer_byte_rate=5.0)
    backward = change((("client-id", client), ("user", user)), producer_byte_rate=5.0)
    ops, answers = alter_quotas(Image(), [forward])
    assert alter_quotas(Image(), [backward]) == (ops, answers) and answers == [None]
    (put,) = ops
    assert isinstance(put, Put) and put.key.startswith(QUOTAS) and put.key.count("/") == 1
    assert entity_of(put.key) == (("client-id", client), ("user", user))
    assert decode_quotas(put.value) == {RATE: 5.0}


def test_changed_removed_and_left_alone() -> None:
    image = Image(quotas={ALICE: {RATE: 5.0, "request_percentage": 1.5}})
    (put,), _ = alter_quotas(image, [change(ALICE, producer_byte_rate=6.0)])
    assert isinstance(put, Put) and decode_quotas(put.value) == {RATE: 6.0, "request_percentage": 1.5}
    (gone,), _ = alter_quotas(image, [change(ALICE, producer_byte_rate=None, request_percentage=None)])
    assert gone == Delete(QUOTAS + "user:alice")
    assert alter_quotas(image, [change(ALICE, producer_byte_rate=5.0)]) == ([], [None])
    assert alter_quotas(Image(), [change(ALICE, producer_byte_rate=None)]) == ([], [None])


@pytest.mark.parametrize(
    "entity",
    [
        (),
        (("planet", "mars"),),
        (("user", ""),),
        (("user", "a"), ("user", "b")),
        (("ip", "10.0.0.1"), ("user", "a")),
        (("ip", "not an address"),),
    ],
)
def test_entities_that_cannot_be(entity: QuotaEntity) -> None:
    answer = only(Image(), change(entity, producer_byte_rate=1.0))
    assert answer is not None and answer.code == ErrorCode.INVALID_REQUEST and answer.message


@pytest.mark.parametrize(
    ("entity", "name", "value"),
    [
        (ALICE, RATE, 0.0),
        (ALICE, RATE, -1.0),
        (ALICE, RATE, nan),
        (ALICE, RATE, inf),
        (ALICE, RATE, 1.5),
        (ALICE, RATE, 2.0**63 + 2**12),
        (ALICE, "request_percentage", inf),
        (ALICE, "connection_creation_rate", 1.0),
        (ALICE, "no_such_rate", 1.0),
        (ALICE, "no_such_rate", None),
        ((("ip", None),), RATE, 1.0),
        ((("ip", "::1"),), "connection_creation_rate", 2.0**31),
    ],
)
def test_values_that_cannot_be(entity: QuotaEntity, name: str, value: float | None) -> None:
    answer = only(Image(), QuotaChange(entity, ((name, value),)))
    assert answer is not None and answer.code == ErrorCode.INVALID_REQUEST and answer.message


@pytest.mark.parametrize(
    ("entity", "name", "value"),
    [
        (ALICE, RATE, 1.0),
        (ALICE, "controller_mutation_rate", 0.1),
        ((("ip", "::1"),), "connection_creation_rate", 2.0**31 - 1),
        ((("ip", None),), "connection_creation_rate", 1.0),
    ],
)
def test_values_that_can(entity: QuotaEntity, name: str, value: float) -> None:
    assert only(Image(), QuotaChange(entity, ((name, value),))) is None


def test_twice_in_one_request() -> None:
    once = change(ALICE, producer_byte_rate=1.0)
    ops, answers = alter_quotas(Image(), [once, once, change((("user", None),), producer_byte_rate=1.0)])
    assert [answer is None for answer in answers] == [False, False, True] and len(ops) == 1
    assert only(Image(), QuotaChange(ALICE, ((RATE, 1.0), (RATE, 2.0)))) is not None


def test_a_filter_needs_every_component() -> None:
    both: QuotaEntity = (("client-id", "c"), ("user", "alice"))
    default: QuotaEntity = (("user", None),)
    image = Image(quotas={entity: {RATE: 1.0} for entity in (ALICE, both, default)})

    def found(*matches: Match, strict: bool = False) -> list[QuotaEntity]:
        answer = find_quotas(image, matches, strict)
        assert not isinstance(answer, Refusal)
        return [entity for entity, _ in answer]

    assert found(Match("user", EXACT, "alice")) == [ALICE, both]
    assert found(Match("user", EXACT, "alice"), strict=True) == [ALICE]
    assert found(Match("user", DEFAULT)) == [default]
    assert found(Match("user", ANY), Match("client-id", EXACT, "c")) == [both]
    assert found(Match("ip", ANY)) == []
