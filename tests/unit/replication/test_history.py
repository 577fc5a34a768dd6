"""Where a follower and its leader part: every pair of histories that two replicas can have ends equal after cuts."""

from __future__ import annotations

from random import Random

import pytest

from cairnmq.replication.history import EpochEnd, EpochHistory


def history(*starts: tuple[int, int], end: int) -> EpochHistory:
    return EpochHistory(starts, end)


@pytest.mark.parametrize(
    ("leader", "follower", "cuts"),
    [
        (history((1, 0), end=100), history((1, 0), end=60), []),
        (history((1, 0), (3, 80), end=120), history((1, 0), end=80), []),
        (history((1, 0), (3, 80), end=120), history((1, 0), end=100), [80]),
        # KIP-279: the leader never had the follower's last epoch.
        (history((1, 0), (3, 80), end=120), history((1, 0), (2, 60), end=90), [60]),
        # The follower lacks the epoch that the leader names: it drops its later one, then asks about the one before.
        (history((1, 0), (2, 80), (4, 90), end=120), history((1, 0), (3, 100), end=110), [100, 80]),
        (history((2, 0), end=10), history((1, 0), end=10), [0]),
        (history(end=0), history((1, 0), end=10), [0]),
    ],
)
def test_where_they_part(leader: EpochHistory, follower: EpochHistory, cuts: list[int]) -> None:
    made = []
    while (parting := leader.parting(follower.last_epoch, follower.end)) is not None:
        follower.cut(follower.cut_for(parting))
        made.append(follower.end)
    assert made == cuts


def test_the_end_of_an_epoch_is_where_the_next_begins() -> None:
    one = history((2, 10), (5, 40), end=70)
    assert [one.end_of(epoch) for epoch in (1, 2, 3, 5, 9)] == [
        EpochEnd(0, 10),
        EpochEnd(2, 40),
        EpochEnd(2, 40),
        EpochEnd(5, 70),
        EpochEnd(5, 70),
    ]


def test_a_cut_forgets_epochs_that_begin_there() -> None:
    one = history((1, 0), (2, 40), (3, 40), end=70)
    one.cut(40)
    assert (one.starts(), one.end, one.last_epoch) == ([(1, 0)], 40, 1)


def test_epochs_never_fall() -> None:
    one = history((4, 0), end=10)
    with pytest.raises(AssertionError):
        one.begin(3, 10)


def test_any_two_replicas_agree_after_cuts() -> None:
    """Histories as elections make them: each leader goes on from a prefix of some earlier journal."""
    for seed in range(300):
        random = Random(seed)
        replicas: list[list[int]] = [[], [], []]  # the epoch of each byte
        for epoch in range(1, 9):
            leader = random.choice(replicas)
            leader.extend([epoch] * random.randint(1, 5))
            for follower in replicas:
                if follower is not leader and random.random() < 0.6:
                    _follow(leader, follower)
                    follower.extend(leader[len(follower) : len(follower) + random.randint(0, 6)])
        for follower in replicas[1:]:
            _follow(replicas[0], follower)
            assert follower == replicas[0][: len(follower)], seed


def _follow(leader: list[int], follower: list[int]) -> None:
    ours, theirs = _history_of(leader), _history_of(follower)
    while (parting := ours.parting(theirs.last_epoch, theirs.end)) is not None:
        theirs.cut(theirs.cut_for(parting))
        del follower[theirs.end :]


def _history_of(journal: list[int]) -> EpochHistory:
    starts = [(epoch, at) for at, epoch in enumerate(journal) if at == 0 or journal[at - 1] != epoch]
    return EpochHistory(starts, len(journal))
