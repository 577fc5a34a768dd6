"""The topics that members of a group of the consumer protocol name, or mean by regular expressions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from hashlib import blake2b

from cairnmq.errors import ErrorCode, Refusal
from cairnmq.groups.topic_pattern import Patterns
from cairnmq.groups.topic_view import TopicView

_UNRESOLVED = -2  # no version of the topics


class SubscribedTopics:
    """`digest`: of the subscribed topics as they were when `renew` looked last."""

    def __init__(self, patterns: Patterns) -> None:
        self.digest = b""
        self.named: Counter[str] = Counter()  # topic -> members that name it
        self.regexes: Counter[str] = Counter()
        self._patterns = patterns
        self._matched: dict[str, frozenset[str]] = {}  # regular expression -> topics, as of `_seen`
        self._seen = _UNRESOLVED  # the version of the topics that `digest` and `_matched` are of

    def add(self, topics: Iterable[str], regex: str) -> None:
        self.named.update(topics)
        if regex:
            self.regexes[regex] += 1

    def remove(self, topics: Iterable[str], regex: str) -> None:
        for counter, names in ((self.named, topics), (self.regexes, (regex,) if regex else ())):
            for name in names:
                counter[name] -= 1
                if not counter[name]:
                    del counter[name]
        if regex and regex not in self.regexes:
            self._matched.pop(regex, None)

    def refusal(self, regex: str | None) -> Refusal | None:
        """Why nobody may subscribe by this expression."""
        if not regex or regex in self.regexes:
            return None
        why = self._patterns.check(regex)
        if why is None:
            return None
        text = f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {why}."
        return Refusal(ErrorCode.INVALID_REGULAR_EXPRESSION, text)

    def is_current(self, view: TopicView) -> bool:
        return view.version == self._seen

    def renew(self, view: TopicView) -> bool:
        """Takes the topics as they are now; True if the subscribed ones are not what they were."""
        if not self.resolve(view):
            self._seen = _UNRESOLVED
            return False
        self._seen = view.version
        before, self.digest = self.digest, self._digest_of(view)
        return self.digest != before

    def resolve(self, view: TopicView) -> bool:
        """Which topics the expressions mean now. False if that would take too long at once: then the next heartbeat
        goes on, and until then what was known holds."""
        fresh = {}
        for regex in self.regexes:
            matched, whole = self._patterns.matching(regex, view.topics)
            if not whole:
                return False
            fresh[regex] = matched
        self._matched = fresh
        return True

    def _digest_of(self, view: TopicView) -> bytes:
        digest = blake2b(digest_size=8)
        for regex in sorted(self.regexes):
            # One that is resolved only now may name topics that others read already: those who wait for it have none.
            digest.update(f"{regex}/".encode())
        for name in sorted(self.names()):
            topic = view.topic(name)
            if topic is not None:
                digest.update(f"{name}/{topic.count}/".encode() + topic.topic_id)
        return digest.digest()

    def names(self) -> frozenset[str]:
        """Topics that the members read."""
        return frozenset(self.named).union(*self._matched.values())

    def ids(self, topics: Iterable[str], regex: str, view: TopicView) -> frozenset[bytes]:
        """What one member's subscription means now."""
        names = {*topics, *self._matched.get(regex, ())}
        return frozenset(topic.topic_id for name in names if (topic := view.topic(name)) is not None)
