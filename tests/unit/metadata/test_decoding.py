"""What cannot be read is named by its key."""

from __future__ import annotations

import pytest

from cairnmq.errors import Corrupt
from cairnmq.metadata.cluster_records import decode_journal
from cairnmq.metadata.decoding import decoded, number


def test_numbers() -> None:
    assert number("ids/next-queue", b"17") == 17
    with pytest.raises(Corrupt, match=r"metadata key ids/next-queue: .*'x'"):
        number("ids/next-queue", b"x")


def test_values() -> None:
    with pytest.raises(Corrupt, match="metadata key journals/3: "):
        decoded("journals/3", b"[]", decode_journal)
