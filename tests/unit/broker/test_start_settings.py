"""What settings and flags come to."""

from __future__ import annotations

from pathlib import Path

import pytest

from cairnmq.broker.options import Address, ServeOptions
from cairnmq.broker.start_errors import CannotServe
from cairnmq.broker.start_settings import settle


def test_settings_fill_what_no_flag_named(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("listeners=PLAINTEXT://127.0.0.1:7000\nnode.id=4\nlog.dirs=/elsewhere\nnum.partitions=3\n")
    options = ServeOptions(config=str(file), node_id=9, given=frozenset({"config", "node_id"}))
    settled, config = settle(options, {"CAIRN_NUM_PARTITIONS": "5"})
    assert (settled.listen, settled.node_id, settled.data) == (Address("127.0.0.1", 7000), 9, "/elsewhere")
    assert config.num_partitions == 5


@pytest.mark.parametrize(
    ("options", "environment", "words"),
    [
        (ServeOptions(settings=(("num.partition", "1"),)), {}, "num.partitions"),
        (ServeOptions(settings=(("num.partitions", "no"),)), {}, "num.partitions"),
        (ServeOptions(), {"CAIRN_NONSENSE": "1"}, "CAIRN_NONSENSE"),
        (ServeOptions(listen=Address("0.0.0.0", 9092), given=frozenset({"listen"})), {}, "--insecure"),
        (ServeOptions(settings=(("listeners", "PLAINTEXT://10.1.2.3:9092"),)), {}, "--insecure"),
        (ServeOptions(metadata="etcd:z", given=frozenset({"metadata"})), {}, "sqlite"),
    ],
)
def test_what_cannot_be_served(options: ServeOptions, environment: dict[str, str], words: str) -> None:
    with pytest.raises(CannotServe, match=words):
        settle(options, environment)


def test_insecure_is_a_choice() -> None:
    options = ServeOptions(listen=Address("0.0.0.0", 9092), insecure=True, given=frozenset({"listen", "insecure"}))
    assert settle(options, {})[0].listen.host == "0.0.0.0"
