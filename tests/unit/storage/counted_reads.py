"""What storage reads of files, counted: all of it, the largest part, and by the end of the file's name."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from cairnmq.storage.files.disk import RealFile
from cairnmq.testing.sim_disk import SimFile


class CountedReads:
    """Of real and simulated files, from the moment when it is made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.forget()
        for kind in (RealFile, SimFile):
            for name in ("read", "read_cached", "read_into"):
                monkeypatch.setattr(kind, name, self._counting(getattr(kind, name)))

    def _counting(self, read: Any) -> Any:
        def counted(file: RealFile | SimFile, *args: Any) -> Any:
            found = read(file, *args)
            size = found if isinstance(found, int) else 0 if found is None else len(found)
            self.total += size
            self.largest = max(self.largest, size)
            self.of_kind[file.name.rpartition(".")[2]] += size
            return found

        return counted

    def forget(self) -> None:
        self.total = self.largest = 0
        self.of_kind: Counter[str] = Counter()
