"""Flags of `cairn serve` as options."""

from __future__ import annotations

import pytest

from cairnmq.broker.options import Address, ServeOptions
from cairnmq.cli.main import build_parser
from cairnmq.cli.serve import options_from
from cairnmq.cli.terminal import UsageError


def options(line: str) -> ServeOptions:
    return options_from(build_parser("serve").parse_args(["serve", *line.split()]))


def test_defaults() -> None:
    assert options("") == ServeOptions(given=frozenset())


def test_every_flag() -> None:
    line = (
        "--data d --journal-dir j --listen [::1]:0 --advertise example.org:9 --http localhost:1 --insecure "
        "--node-id 7 --rack r --metadata sqlite:m --internal [::1]:5 --config c --set a=b --set c=d=e "
        "--ready-file f --accept-loss"
    )
    made = options(line)
    assert made.given == set(ServeOptions.__struct_fields__) - {"given"}
    assert made == ServeOptions(
        data="d",
        journal_dir="j",
        listen=Address("::1", 0),
        advertise=Address("example.org", 9),
        http=Address("localhost", 1),
        insecure=True,
        accept_loss=True,
        node_id=7,
        rack="r",
        metadata="sqlite:m",
        internal=Address("::1", 5),
        config="c",
        settings=(("a", "b"), ("c", "d=e")),
        ready_file="f",
        given=made.given,
    )


def test_no_http_counts_as_given() -> None:
    made = options("--no-http")
    assert made.http is None and made.given == {"http"}


@pytest.mark.parametrize("flag", ["--listen 0.0.0.0:9092", "--http 10.0.0.1:80", "--listen example.org:1"])
def test_other_machines_are_let_in_only_on_purpose(flag: str) -> None:
    with pytest.raises(UsageError, match="no authentication.*--insecure"):
        options(flag)
    assert options(f"{flag} --insecure").insecure
