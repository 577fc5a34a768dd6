"""Data directories that former versions wrote open as they are, and hold what clients were told then.

`record_data.py` makes them. One that is here stays as it is: the formats are a promise.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

from broker_process import Broker
from cairnmq.cli.main import main
from golden.record_data import HERE, SETTING, told

RECORDED = sorted(path.name.removesuffix(".tar.gz") for path in HERE.glob("data-*.tar.gz"))


@pytest.fixture(params=RECORDED)
def former(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    """A version, and a directory with its `data`."""
    data = tmp_path / "data"
    with tarfile.open(HERE / f"{request.param}.tar.gz") as archive:
        archive.extractall(data, filter="data")
    return request.param, tmp_path


def setting_of(bootstrap: str) -> tuple[str, str]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (described,) = admin.describe_configs([ConfigResource(ConfigResource.Type.BROKER, "1")]).values()
    entry = described.result()["cairn.journal.retention.bytes"]
    return entry.name, entry.value


def test_former_data_open(former: tuple[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    version, directory = former
    expected = json.loads((HERE / f"{version}.json").read_text())
    broker = Broker(directory, http=False)
    assert main(["verify", str(broker.data)]) == 0, capsys.readouterr().out
    try:
        broker.start()
        assert told(broker.bootstrap) == expected
        assert setting_of(broker.bootstrap) == ("cairn.journal.retention.bytes", SETTING[1]), (
            "stored as its former name"
        )
        assert broker.stop() == 0
        broker.start()
        assert told(broker.bootstrap) == expected, "after another start, from today's files"
        assert broker.stop() == 0
    finally:
        broker.close()
    assert main(["verify", str(broker.data)]) == 0, capsys.readouterr().out
