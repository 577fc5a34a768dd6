"""The store that brokers share is opened, or it is said why not."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path

from cairnmq.metadata.shared_place import SharedPlace
from cairnmq.metadata.shared_store import open_shared
from unit.metadata.conformance import done


def test_a_file_is_made_and_shared(tmp_path: Path) -> None:
    place = SharedPlace(path=str(tmp_path / "cluster.db"))
    with closing(open_shared(place)) as one, closing(open_shared(place)) as other:
        done(one.put("k/a", b"1"))
        assert other.get("k/a") == one.get("k/a")


_WITHOUT_KAZOO = """
import sys
sys.modules["kazoo"] = None
from cairnmq.errors import Fault
from cairnmq.metadata.shared_place import shared_place
from cairnmq.metadata.shared_store import open_shared
try:
    open_shared(shared_place("zookeeper://127.0.0.1:1"))
except Fault as fault:
    print(fault)
"""


def test_a_missing_package_is_named_with_what_installs_it() -> None:
    done = subprocess.run([sys.executable, "-c", _WITHOUT_KAZOO], capture_output=True, text=True, check=True)
    assert "pip install '.[cluster]' in a clone" in done.stdout and "kazoo" in done.stdout


def test_a_broker_without_zookeeper_does_not_load_it() -> None:
    line = "import sys, cairnmq.broker.server, cairnmq.cli.main; print('kazoo' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
