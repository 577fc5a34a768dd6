"""How two brokers meet, and every reason why they do not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cairnmq.wire.internal import DATA, Failed, Failure, Hello, Prove, Welcome, decode, encode
from cairnmq.wire.internal_handshake import NONCE_BYTES, Accepting, Connecting, Identity, LinkRefused, proof_of_secret

ONE, TWO = Identity("cluster-a", 1, 11), Identity("cluster-a", 2, 22)
SECRET, OTHER = b"0123456789abcdef", b"0123456789abcdeF"


def nonce(seed: int) -> bytes:
    return bytes([seed]) * NONCE_BYTES


def connecting(own: Identity = TWO, secret: bytes | None = SECRET, purpose: str = DATA, to: int = 1) -> Connecting:
    return Connecting(own, secret, 7, purpose, nonce(1), to)


def accepting(own: Identity = ONE, secret: bytes | None = SECRET, seed: int = 2) -> Accepting:
    return Accepting(own, secret, nonce(seed))


def meet(here: Connecting, there: Accepting) -> tuple[Identity, Hello]:
    """What each side knows of the other in the end."""
    hello = there.proved(here.greeted(there.greeted(here.hello)))
    return here.welcomed(there.welcome()), hello


def refusal(work: Callable[[], object]) -> Failure:
    with pytest.raises(LinkRefused) as caught:
        work()
    assert decode(Failed, caught.value.message()).text == caught.value.text
    return caught.value.code


@pytest.mark.parametrize("secret", [None, SECRET])
def test_both_sides_know_each_other(secret: bytes | None) -> None:
    peer, hello = meet(connecting(secret=secret), accepting(secret=secret))
    assert peer == ONE
    assert (hello.broker, hello.broker_epoch, hello.link_number, hello.purpose) == (2, 22, 7, DATA)


@pytest.mark.parametrize(("here", "there"), [((1, 3), (2, 5)), ((2, 5), (1, 3)), ((3, 3), (1, 9))])
def test_the_highest_common_version_is_chosen(here: tuple[int, int], there: tuple[int, int]) -> None:
    own = replace(TWO, min_version=here[0], max_version=here[1])
    other = replace(ONE, min_version=there[0], max_version=there[1])
    accepted = accepting(other)
    peer, _ = meet(connecting(own), accepted)
    assert peer.max_version == accepted.version == 3


@pytest.mark.parametrize("versions", [(2, 3), (0, 0)])
def test_versions_without_overlap(versions: tuple[int, int]) -> None:
    own = replace(TWO, min_version=versions[0], max_version=versions[1])
    assert refusal(lambda: meet(connecting(own), accepting())) is Failure.NO_COMMON_VERSION


def test_a_welcome_of_another_version_is_refused() -> None:
    here, there = connecting(secret=None), accepting(secret=None)
    there.proved(here.greeted(there.greeted(here.hello)))
    assert refusal(lambda: here.welcomed(encode(Welcome(2)))) is Failure.NO_COMMON_VERSION


@pytest.mark.parametrize(
    ("here", "there", "code"),
    [
        (SECRET, OTHER, Failure.SECRET_WRONG),
        (SECRET, None, Failure.SECRET_MISSING),
        (None, SECRET, Failure.SECRET_MISSING),
    ],
)
def test_secrets_that_differ(here: bytes | None, there: bytes | None, code: Failure) -> None:
    assert refusal(lambda: meet(connecting(secret=here), accepting(secret=there))) is code


def test_an_accepting_side_without_the_secret_is_refused() -> None:
    """It lets everybody in, so the connecting side has to look."""
    for secret, proof, code in ((OTHER, None, Failure.SECRET_WRONG), (SECRET, b"", Failure.SECRET_MISSING)):
        here, there = connecting(), accepting(secret=secret)
        here.greeted(there.greeted(here.hello))
        welcome = there.welcome() if proof is None else encode(Welcome(1, proof))
        assert refusal(lambda here=here, welcome=welcome: here.welcomed(welcome)) is code


def test_a_proof_cannot_be_used_again() -> None:
    here, first, second = connecting(), accepting(), accepting(seed=3)
    proof = here.greeted(first.greeted(here.hello))
    first.proved(proof)
    second.greeted(here.hello)
    assert refusal(lambda: second.proved(proof)) is Failure.SECRET_WRONG


def test_a_proof_cannot_be_sent_back() -> None:
    """Who has no secret returns what he was sent."""
    here, there = connecting(), accepting()
    proof = decode(Prove, here.greeted(there.greeted(here.hello))).proof
    assert refusal(lambda: here.welcomed(encode(Welcome(1, proof)))) is Failure.SECRET_WRONG


def test_what_was_said_cannot_be_changed_on_the_way() -> None:
    here, there = connecting(), accepting()
    changed = encode(replace(decode(Hello, here.hello), broker_epoch=23))
    assert refusal(lambda: there.proved(here.greeted(there.greeted(changed)))) is Failure.SECRET_WRONG


@pytest.mark.parametrize(
    ("own", "to", "purpose", "code"),
    [
        (replace(TWO, cluster_id="cluster-b"), 1, DATA, Failure.OTHER_CLUSTER),
        (TWO, 3, DATA, Failure.OTHER_BROKER),
        (replace(TWO, broker=1), 1, DATA, Failure.OTHER_BROKER),
        (replace(TWO, broker=-1), 1, DATA, Failure.OTHER_BROKER),
        (TWO, 1, "gossip", Failure.NOT_SERVED),
    ],
)
def test_those_who_do_not_belong_here(own: Identity, to: int, purpose: str, code: Failure) -> None:
    assert refusal(lambda: accepting().greeted(connecting(own, to=to, purpose=purpose).hello)) is code


@pytest.mark.parametrize(
    ("own", "code"),
    [
        (replace(ONE, cluster_id="cluster-b"), Failure.OTHER_CLUSTER),
        (replace(ONE, broker=3), Failure.OTHER_BROKER),
    ],
)
def test_the_connecting_side_looks_too(own: Identity, code: Failure) -> None:
    answer = Hello(own.cluster_id, own.broker, own.broker_epoch, 7, DATA, 1, 1, nonce(2), 2)
    assert refusal(lambda: connecting().greeted(encode(answer))) is code


def test_frames_in_another_order_are_refused() -> None:
    here, there = connecting(), accepting()
    assert refusal(lambda: there.proved(encode(Prove()))) is Failure.MALFORMED
    assert refusal(lambda: here.welcomed(encode(Welcome(1)))) is Failure.MALFORMED
    there.greeted(here.hello)
    assert refusal(lambda: there.greeted(here.hello)) is Failure.MALFORMED


@given(st.binary(max_size=300))
def test_any_bytes_are_refused(data: bytes) -> None:
    steps: list[Callable[[bytes], object]] = [accepting().greeted, connecting().greeted]
    greeted, welcomed = accepting(), connecting()
    welcomed.greeted(greeted.greeted(welcomed.hello))
    for step in [*steps, greeted.proved, welcomed.welcomed]:
        with pytest.raises(LinkRefused):
            step(data)


@given(st.data())
def test_a_changed_bit_anywhere_is_noticed(data: st.DataObject) -> None:
    """In whichever message: with a secret nobody gets a link out of it."""
    here, there = connecting(), accepting()

    def spoiled(header: bytes, is_target: bool) -> bytes:
        if not is_target:
            return header
        changed = bytearray(header)
        changed[data.draw(st.integers(0, len(changed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        return bytes(changed)

    target = data.draw(st.integers(0, 3))
    with pytest.raises(LinkRefused):
        greeting = there.greeted(spoiled(here.hello, target == 0))
        proof = here.greeted(spoiled(greeting, target == 1))
        there.proved(spoiled(proof, target == 2))
        here.welcomed(spoiled(there.welcome(), target == 3))


def test_what_the_metadata_know_of_a_secret() -> None:
    """Equal for the same secret of the same cluster, and no proof of a link."""
    proof = proof_of_secret("0123456789abcdef", "cluster-a")
    assert proof == proof_of_secret("0123456789abcdef", "cluster-a") != b""
    others = [proof_of_secret("0123456789abcdeF", "cluster-a"), proof_of_secret("0123456789abcdef", "cluster-b")]
    assert proof not in others and b"0123456789abcdef" not in proof
    assert proof_of_secret(None, "cluster-a") == proof_of_secret("", "cluster-a") == b""
