"""Lives of brokers: which are clean, whose sessions are taken over, what a disk lacks."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from cairnmq.broker.cluster.cluster_store import Done, Refused
from cairnmq.broker.cluster.session_wait import Obstacle
from cairnmq.errors import Fault, TakenOver, Unreachable
from cairnmq.metadata.store import Entry
from cairnmq.replication.lives import Lacking
from cairnmq.replication.records import Member
from unit.broker.cluster.brokers import SESSION_MS, Machines, entry, journal, registered


@pytest.fixture
def machines() -> Machines:
    return Machines()


def test_a_first_life(machines: Machines) -> None:
    one, two = machines.broker(1), machines.broker(2)
    one.cluster.poll()
    image = one.cluster.cluster
    assert [one.cluster.me, two.cluster.me] == image.live_members() == [Member(1, 1), Member(2, 2)]
    assert image.view.brokers[1] == image.brokers[1].record and not image.brokers[1].record.clean
    assert (image.brokers[2].host, image.brokers[2].internal_port, image.level) == ("127.0.0.1", 9102, 1)
    assert image == two.cluster.cluster and image.view.last_epoch == 2


@pytest.mark.parametrize(("stopped_as", "clean"), [(1, True), (0, False), (9, False)])
def test_next_life(machines: Machines, stopped_as: int, clean: bool) -> None:
    """It is clean if its marker is of the life before; the session that was left over is taken over at once."""
    machines.broker(1)
    before_ms = machines.time.now_ms
    again = machines.broker(1, registered=False)
    assert again.register(stopped_as) == Member(1, 2) and machines.time.now_ms == before_ms
    record = registered(again).record
    assert (record.previous, record.clean) == (1, clean)
    machines.pass_ms(SESSION_MS * 3, again)
    again.cluster.poll()
    assert again.cluster.cluster.live_members() == [Member(1, 2)], "the end of the former session takes nothing"


def test_a_marker_of_nobody_is_no_clean_stop(machines: Machines) -> None:
    one = machines.broker(1, registered=False)
    one.register(stopped_as=0)
    assert not registered(one).record.clean


def test_another_directory_waits_for_the_session(machines: Machines) -> None:
    """Of a broker that is dead. It lacks all that the other directory had, and is never clean."""
    one, two = machines.broker(1), machines.broker(2)
    journal(two, Member(1, 1), Member(2, 2))
    again = machines.broker(1, registered=False)
    again.cluster._registration._sleep = lambda seconds: machines.pass_ms(int(seconds * 1000), two)
    before_ms = machines.time.now_ms
    assert again.register(stopped_as=1, directory_id="wiped") == Member(1, 3)
    assert SESSION_MS <= machines.time.now_ms - before_ms <= 2 * SESSION_MS
    record = registered(again).record
    assert (record.clean, record.damaged) == (False, {7})
    assert one.cluster.renew() is False


def test_another_directory_is_refused_while_a_live_broker_has_the_id(machines: Machines) -> None:
    one, again = machines.broker(1), machines.broker(1, registered=False)
    again.cluster._registration._sleep = lambda seconds: machines.pass_ms(int(seconds * 1000), one)
    before_ms = machines.time.now_ms
    with pytest.raises(Fault, match=r"broker id 1 is in use by a live broker at 127.0.0.1:9001 with another data dir"):
        again.register(directory_id="other")
    assert machines.time.now_ms - before_ms <= SESSION_MS, "its first renewal says that it lives"
    assert registered(one).directory_id == "d1" and one.cluster.renew() is True
    machines.pass_ms(SESSION_MS * 3, one)
    assert len(machines.state.sessions) == 1, "what was refused leaves no session"


def test_damage_stays_until_it_is_repaired(machines: Machines) -> None:
    machines.broker(1, registered=False).register(lacking=Lacking(frozenset({3, 7})))
    one = machines.broker(1)
    assert registered(one).record.damaged == {3, 7}, "a restart heals nothing"
    assert isinstance(one.cluster.repaired(3), Done)
    assert registered(one).record.damaged == {7}
    machines.broker(1)
    assert isinstance(one.cluster.repaired(7), Refused), "of an earlier life"


def test_what_was_restored_is_damaged_no_more(machines: Machines) -> None:
    """If it was not cut since: how far the disk had it was noted. A new session of the same process changes nothing."""
    one = machines.broker(1, registered=False)
    one.register(lacking=Lacking(frozenset({3, 7}), had={7: 900}))
    one.cluster.register(entry(1), 1)
    record = registered(one).record
    assert (record.broker_epoch, record.damaged, record.had) == (2, {3, 7}, {7: 900})
    again = machines.broker(1, registered=False)
    again.register(lacking=Lacking(whole=frozenset({7})))
    assert (registered(again).record.damaged, registered(again).record.had) == ({3}, {})


def test_what_is_repaired_needs_no_position_any_more(machines: Machines) -> None:
    one = machines.broker(1, registered=False)
    one.register(lacking=Lacking(frozenset({3, 7}), had={3: 5, 7: 900}))
    assert isinstance(one.cluster.repaired(7), Done)
    assert (registered(one).record.damaged, registered(one).record.had) == ({3}, {3: 5})


def test_a_level_that_this_version_does_not_know(machines: Machines) -> None:
    machines.broker(1)
    new = machines.broker(2, registered=False)
    with pytest.raises(Fault, match="the cluster is at level 1; this version knows levels 2 to 3"):
        new.cluster.register(replace(entry(2), level=(2, 3)), 0)
    assert len(machines.state.sessions) == 1


def test_registration_while_the_store_is_away(machines: Machines) -> None:
    one = machines.broker(1, registered=False)
    machines.stores[1].away = True
    with pytest.raises(Unreachable):
        one.register()
    machines.stores[1].away = False
    assert one.register() == Member(1, 1)


@pytest.mark.parametrize("made", [True, False])
def test_a_registration_in_doubt(machines: Machines, made: bool) -> None:
    """A life that was begun is used, not lost: the next one would not be clean."""
    one = machines.broker(1)
    store = machines.stores[1]
    resolve = store.resolve
    store.resolve = lambda doubt: doubt  # type: ignore[method-assign, assignment, return-value]
    store.loses = made
    with pytest.raises(Unreachable):
        one.register(stopped_as=1)
    store.loses, store.resolve = None, resolve  # type: ignore[method-assign]
    assert one.register(stopped_as=1) == Member(1, 2)
    record = registered(one).record
    assert (record.previous, record.clean) == (1, True) and one.cluster.renew() is True


def test_a_life_that_another_process_took_over_is_over(machines: Machines) -> None:
    """The session ended, and somebody registered since: a copy of the directory, or another one."""
    one, again = machines.broker(1), machines.broker(1)
    assert one.cluster.renew() is False
    with pytest.raises(TakenOver, match=r"another process took over broker id 1 at 127.0.0.1:9001, in epoch 2"):
        one.register(stopped_as=1)
    assert again.cluster.renew() is True and registered(again).record.broker_epoch == 2
    assert len(machines.state.sessions) == 2, "that of the refused attempt is closed"


def test_a_life_that_nobody_took_over_goes_on(machines: Machines) -> None:
    """Also when its keys were removed, or its id was forgotten."""
    one, two = machines.broker(1), machines.broker(2)
    two.cluster.poll()
    assert isinstance(two.cluster.remove_dead(1, two.cluster.cluster), Done)
    assert one.cluster.renew() is False and one.register(stopped_as=1) == Member(1, 3)
    assert one.register(stopped_as=3) == Member(1, 4), "again and again"


SOME, OTHER, NONE = b"proof", b"other", b""


@pytest.mark.parametrize(
    ("own", "why"),
    [
        (NONE, "this broker has no cairn.cluster.secret, and broker 1 has one. It must be the same"),
        (OTHER, "this broker has another cairn.cluster.secret than broker 1"),
    ],
)
def test_another_secret_is_refused_while_others_live(machines: Machines, own: bytes, why: str) -> None:
    one, two = machines.broker(1, proof=SOME), machines.broker(2, registered=False, proof=own)
    two.cluster._registration._sleep = lambda seconds: machines.pass_ms(int(seconds * 1000), one)
    with pytest.raises(Fault, match=why):
        two.register()
    assert registered(one).record.broker_epoch == 1 and 2 not in one.cluster.cluster.brokers
    assert machines.broker(2, proof=SOME).cluster.me == Member(2, 2)


def test_no_secret_is_one_too(machines: Machines) -> None:
    one, two = machines.broker(1), machines.broker(2, registered=False, proof=SOME)
    two.cluster._registration._sleep = lambda seconds: machines.pass_ms(int(seconds * 1000), one)
    with pytest.raises(Fault, match=r"this broker has a cairn.cluster.secret, and broker 1 has none"):
        two.register()


def test_the_secret_is_changed_when_no_other_broker_lives(machines: Machines) -> None:
    """Also after they were killed: their sessions are waited for."""
    machines.broker(1, proof=SOME).cluster.close()
    machines.broker(2, proof=OTHER)
    three = machines.broker(3, registered=False, proof=SOME)
    before_ms = machines.time.now_ms
    three.register()
    assert machines.time.now_ms - before_ms <= SESSION_MS * 1.5 and three.cluster.me == Member(3, 3)


def test_two_first_brokers_with_different_secrets(machines: Machines) -> None:
    """Both have found none; the later one is told."""
    one, two = (machines.broker(number, registered=False, proof=proof) for number, proof in ((1, SOME), (2, OTHER)))
    two.cluster._registration._sleep = lambda seconds: machines.pass_ms(int(seconds * 1000), one)
    check = two.cluster._registration._other_secret

    def and_meanwhile(kept: Entry | None) -> Obstacle | None:
        obstacle = check(kept)
        if one.cluster.me is None:
            one.register()
        return obstacle

    two.cluster._registration._other_secret = and_meanwhile  # type: ignore[method-assign]
    with pytest.raises(Fault, match=r"another cairn.cluster.secret than broker 1"):
        two.register()
