"""One group and a clock that only the test moves. Members are told by name; the broker's ids for them are kept here.

Every decision's facts are stored at once, so at any moment `restart` can ask what a broker would find.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from cairnmq.decision import KeyedRecord
from cairnmq.errors import ErrorCode
from cairnmq.groups.groups import Groups
from cairnmq.groups.messages import GroupDecision, Identity, Join, Joined, Limits, Response, State, Sync, Synced
from cairnmq.groups.offset_messages import OffsetCommit
from cairnmq.groups.offsets import Offsets
from cairnmq.wire.codec import encode
from cairnmq.wire.messages import ConsumerProtocolSubscription

GROUP = "g"
START_MS = 1_000_000
SESSION_MS = 10_000
REBALANCE_MS = 60_000
LIMITS = Limits(initial_delay_ms=0)


def subscription(*topics: str, version: int = 1) -> bytes:
    message = ConsumerProtocolSubscription(topics=list(topics))
    return version.to_bytes(2, "big") + b"".join(encode(message, version))


RANGE = (("range", subscription("orders")),)


class Room:
    def __init__(self, limits: Limits = LIMITS) -> None:
        self.limits = limits
        self.groups = Groups(Offsets(), limits)
        self.now_ms = START_MS
        self.stored: dict[tuple[str, bytes], bytes] = {}
        self.facts: list[KeyedRecord] = []
        self.answers: dict[str, Any] = {}
        self.waiting: set[str] = set()
        self.ids: dict[str, str] = {}
        self.generations: dict[str, int] = {}
        self._numbers = itertools.count(1)

    # What members do. A ticket is the member's name; the last answer to it is in `answers`.

    def join(self, name: str, *, member_id: str | None = None, **fields: Any) -> Joined | None:
        """None while the answer is awaited."""
        protocols = fields.pop("protocols", RANGE)
        command = Join(
            GROUP,
            self.ids.get(name, "") if member_id is None else member_id,
            fields.pop("instance_id", None),
            name,
            "/10.0.0.1",
            fields.pop("session_ms", SESSION_MS),
            fields.pop("rebalance_ms", REBALANCE_MS),
            fields.pop("protocol_type", "consumer"),
            protocols,
            **{"needs_id": False} | fields,
        )
        self.answers.pop(name, None)
        self.waiting.add(name)
        self.take(self.groups.join(command, name, self.now_ms, f"{name}-{next(self._numbers)}"))
        return self.joined(name)

    def sync(self, name: str, assignments: dict[str, bytes] | None = None, **fields: Any) -> Synced | None:
        """Assignments are told by members' names."""
        by_id = {self.ids.get(member, member): given for member, given in (assignments or {}).items()}
        command = Sync(
            GROUP,
            fields.pop("generation", self.generations.get(name, -1)),
            fields.pop("member_id", self.ids.get(name, "")),
            assignments=by_id,
            **fields,
        )
        self.answers.pop(name, None)
        self.take(self.groups.sync(command, name, self.now_ms))
        answer = self.answers.get(name)
        assert answer is None or isinstance(answer, Synced), answer
        return answer

    def heartbeat(self, name: str, *, generation: int | None = None, instance_id: str | None = None) -> ErrorCode:
        asked = self.generations.get(name, -1) if generation is None else generation
        return self.groups.heartbeat(GROUP, self.ids.get(name, ""), instance_id, asked, self.now_ms)

    def leave(self, *identities: Identity | str) -> list[ErrorCode]:
        who = [Identity(self.ids[one]) if isinstance(one, str) else one for one in identities]
        self.take(self.groups.leave(GROUP, who, "leave", self.now_ms))
        left = self.answers.pop("leave")
        assert left.error == ErrorCode.NONE
        return [code for _, code in left.members]

    def commit_error(self, name: str = "", generation: int = -1, **fields: Any) -> ErrorCode:
        in_transaction = fields.pop("transactional", False)
        command = OffsetCommit(
            GROUP,
            self.ids.get(name, name),
            fields.pop("instance_id", None),
            generation,
            producer_id=9 if in_transaction else None,
            **fields,
        )
        return self.groups.commits.error(command, self.now_ms)

    def pass_time(self, ms: int) -> None:
        """Deadlines are met one after another, not all at the end."""
        end_ms = self.now_ms + ms
        while self.groups.wake_ms <= end_ms:
            self.now_ms = max(self.now_ms, self.groups.wake_ms)
            for _, decision in self.groups.advance(self.now_ms):
                self.take(decision)
        self.now_ms = end_ms

    def keep_alive(self, ms: int, *names: str) -> None:
        """Time passes, and these members send heartbeats."""
        for _ in range(ms // 1000):
            self.pass_time(1000)
            for name in names:
                self.heartbeat(name)

    # What comes of it.

    def take(self, decision: GroupDecision) -> None:
        self.apply(decision.records)
        for ticket, answer in decision.responses:
            self._answered(str(ticket), answer)

    def apply(self, facts: Sequence[KeyedRecord]) -> None:
        for fact in facts:
            self.groups.apply(fact)
            self.facts.append(fact)
            space, key, value = fact
            if value is None:
                self.stored.pop((space, key), None)
            else:
                self.stored[space, key] = value

    def _answered(self, name: str, answer: Response) -> None:
        assert name not in self.answers, f"{name} is answered twice"
        self.answers[name] = answer
        self.waiting.discard(name)
        if isinstance(answer, Joined):
            if answer.error in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
                self.ids[name] = answer.member_id
            if answer.error == ErrorCode.NONE:
                self.generations[name] = answer.generation

    def joined(self, name: str) -> Joined | None:
        answer = self.answers.get(name)
        assert answer is None or isinstance(answer, Joined), answer
        return answer

    @property
    def state(self) -> State:
        described = self.groups.describe(GROUP)
        return State.DEAD if described is None else described.state

    def members(self) -> dict[str, bytes]:
        """Name -> assignment, of those who are in the group."""
        described = self.groups.describe(GROUP)
        names = {member_id: name for name, member_id in self.ids.items()}
        assert described is not None
        return {names.get(member.member_id, member.member_id): member.assignment for member in described.members}

    def stable(self, *names: str, **fields: Any) -> Room:
        """These members in a stable group; the first one leads."""
        self.join(names[0], **fields)
        for name in names[1:]:
            self.join(name, **fields)
        self.rejoin(*names, **fields)
        assert self.state is State.STABLE
        return self

    def rejoin(self, *names: str, **fields: Any) -> None:
        """All join again and get their assignments: a whole rebalance. Who leads is not asked twice."""
        for name in names:
            if name not in self.waiting:
                self.join(name, **fields)
        leader = next(name for name in names if self.ids[name] == self._leader())
        for name in [one for one in names if one != leader] + [leader]:
            self.sync(name, {one: f"for {one}".encode() for one in names} if name == leader else None)

    def _leader(self) -> str:
        answer = next(a for a in self.answers.values() if isinstance(a, Joined) and a.error == ErrorCode.NONE)
        return answer.leader

    def restart(self) -> Room:
        """Another broker on what is stored."""
        again = Room(self.limits)
        for (space, key), value in self.stored.items():
            if space == "offset":
                again.groups.offsets.apply((space, key, value))
        again.groups = Groups.load(
            [(key, value) for (space, key), value in self.stored.items() if space == "group"],
            again.groups.offsets,
            self.limits,
        )
        again.stored, again.ids, again.generations = dict(self.stored), dict(self.ids), dict(self.generations)
        again.now_ms = self.now_ms
        again.groups.resume(self.now_ms)
        return again


def codes(answers: Sequence[Any]) -> list[ErrorCode]:
    return [answer.error for answer in answers]
