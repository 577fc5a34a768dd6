"""A leader's response that contradicts itself is never sent."""

from __future__ import annotations

import pytest

from cairnmq.broker.internal.answer import Answer
from cairnmq.storage.journal.file_ranges import file_ranges
from unit.broker.internal.link_rig import Range, told
from unit.storage.replica_harness import Leading


def test_parts_in_order() -> None:
    one, two, three = memoryview(b"abc"), Range(9, 100, 5), memoryview(b"d")
    answer = Answer([told(8), told(0, 1), told(1, 2)], [[one, two], [], [three]])
    assert answer.checked(9) == [one, two, three]


def test_a_file_that_the_system_does_not_know_is_sent_by_its_content() -> None:
    leading = Leading()
    leading.put()
    data = bytes(leading.content())
    (unknown,) = file_ranges(leading.path.journal, 0, len(data))
    assert unknown.fd == -1
    assert Answer([told(len(data))], [[unknown]]).checked(len(data)) == [memoryview(data)]


def test_bytes_are_optional() -> None:
    assert Answer().checked(0) == []
    assert Answer([told(), told()]).checked(0) == []
    assert Answer([told(1), told()], [[memoryview(b"a")]]).checked(1) == [memoryview(b"a")]


def test_sizes_that_differ_are_refused() -> None:
    with pytest.raises(ValueError, match=r"told are \[4\], those of the parts \[3\]"):
        Answer([told(4)], [[memoryview(b"abc")]]).checked(10)
    with pytest.raises(ValueError, match="told are"):
        Answer([told(1)]).checked(10)
    with pytest.raises(ValueError, match="told are"):
        Answer([], [[memoryview(b"a")]]).checked(10)


def test_more_than_was_asked_for_is_refused() -> None:
    with pytest.raises(ValueError, match="3 bytes are more than the 2"):
        Answer([told(3)], [[memoryview(b"abc")]]).checked(2)
