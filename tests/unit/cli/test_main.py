"""The command itself: exit codes, lazy loading, what is refused because it comes later, pipes that close."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from cairnmq import __version__, kernels
from cairnmq.cli.main import COMMANDS, LATER, build_parser, main
from scripted_broker import ScriptedBroker, metadata


def cairn(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cairnmq.cli.main", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)  # type: ignore[call-overload, no-any-return]


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"cairn {__version__} ({kernels.summary()})\n"
    assert version("cairnmq") == __version__


@pytest.mark.parametrize("command", LATER)
def test_later_commands_are_refused(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "list", "--whatever"]) == 2
    assert "comes with a later release" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line",
    [
        "produce t --tag x",
        "produce t --delay 5",
        "produce t --at 5",
        "get t 0 0 --key k",
        "topic shrink t -p 1",
        "cluster drain 1",
        "cluster rebalance",
    ],
)
def test_later_flags_are_refused(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code: int | str | None = main(line.split())
    except SystemExit as stopped:
        code = stopped.code
    assert code == 2
    assert "comes with a later release" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line",
    [
        "nonsense",
        "topic",
        "topic create",
        "cluster",
        "cluster health --http ftp://x",
        "topic create t -p 0",
        "topic create t -p 99999999999",
        "topic create t -r 40000",
        "topic create t -c novalue",
        "topic add-partitions t",
        "topic add-partitions t -n 2147483647",
        "topic list -b nonsense:port",
        "topic trim t",
        "topic alter t",
        "consume",
        "consume t -o soon",
        "consume t -o @99999999999999999999",
        "consume t -o @1969-12-31T23:59:59.999Z",
        "consume t -p 0-99999999999",
        "consume t -f %q",
        "consume t -f %v --json",
        "consume t -p 3-1",
        "consume t -n 0",
        "produce t -k a -K b",
        "produce t -z rar",
        "produce t --acks 2",
        "produce t -H novalue",
        "get t 0 -1",
        "serve --listen nowhere",
        "serve --listen 999.1.1.1:9092 --insecure",
        "serve --metadata zookeeper://h:1",
        "serve --http 127.0.0.1:1 --no-http",
        "serve --set novalue",
        "completion tcsh",
        "verify",
        "verify a b --journal-dir j",
    ],
)
def test_wrong_usage_is_2(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code: int | str | None = main(line.split())
    except SystemExit as stopped:
        code = stopped.code
    assert code == 2
    captured = capsys.readouterr()
    assert "cairn" in captured.err and captured.out == ""


@pytest.mark.parametrize(
    "words",
    [
        ["produce", "t", "-K", ""],
        ["produce", os.fsdecode(b"t\xff")],
        ["topic", "create", os.fsdecode(b"t\xff")],
        ["topic", "create", "t", "-c", os.fsdecode(b"a=\xff")],
        ["consume", "t", "-g", os.fsdecode(b"\xff")],
        ["group", "reset", "g", "-t", os.fsdecode(b"\xff:1"), "--to-latest"],
    ],
)
def test_what_cannot_be_sent_is_wrong_usage(words: list[str]) -> None:
    with ScriptedBroker(lambda request, header: metadata({"t": [1]}, {1: broker.port})) as broker:
        with pytest.raises(SystemExit, match="2"):
            main([*words, "-b", broker.bootstrap])
        assert not broker.connections


def test_a_failure_is_1_and_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topic", "list", "-b", "127.0.0.1:1"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("cairn: cannot reach 127.0.0.1:1: connection refused; is `cairn serve` running?")


def test_the_environment_names_the_broker(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAIRN_BOOTSTRAP", "127.0.0.1:2")
    assert main(["topic", "list"]) == 1
    assert "127.0.0.1:2" in capsys.readouterr().err
    assert main(["topic", "list", "-b", "127.0.0.1:3"]) == 1
    assert "127.0.0.1:3" in capsys.readouterr().err


def test_a_missing_file_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["produce", "t", "-f", "/no/such/file"]) == 1
    assert capsys.readouterr().err == "cairn: /no/such/file: no such file or directory\n"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("prodcue", "unknown command 'prodcue'; did you mean produce?"),
        ("topics", "unknown command 'topics'; did you mean topic?"),
        ("group lst", "unknown action 'lst'; did you mean list?"),
        ("xyzzy", "unknown command 'xyzzy'; there are serve, topic, "),
        ("start", "unknown command 'start'; did you mean serve?"),
        ("version", "unknown command 'version'; did you mean --version?"),
        ("topic rm", "unknown action 'rm'; did you mean delete?"),  # trim, the nearest name, deletes messages
        ("group ls", "unknown action 'ls'; did you mean list?"),
        ("txn rm", "unknown action 'rm'; there are list, describe, abort"),
        ("produce orders hello", "unknown argument 'hello'; messages are read from stdin, as in `echo hello |"),
        ("get orders 0 1 2", "unknown argument '2'\n"),
        ("consume orders --from-beginning", "unknown option '--from-beginning'; did you mean -o start?"),
        ("consume --topic orders", "unknown option '--topic'; just write `cairn consume TOPIC`"),
        ("topic create t --topic=orders", "'--topic'; just write `cairn topic create TOPIC`"),
        ("produce -t orders", "'-t'; just write `cairn produce TOPIC`"),
        ("group describe --group billing", "just write `cairn group describe GROUP`"),
        ("topic create orders --replication-factor 1", "did you mean --replicas?"),
        ("topic list --bootstrap-server h:1", "did you mean --bootstrap?"),
        ("consume orders --brokers h:1", "did you mean --bootstrap?"),
        ("serve --log-level loud", "argument --log-level: 'loud' is not one of debug, info, warning, error"),
        ("serve --verbose", "did you mean --log-level debug?"),
        ("list", "unknown command 'list'; did you mean topic list?"),
        ("tail orders", "unknown command 'tail'; did you mean consume?"),
        ("group reset-offsets", "unknown action 'reset-offsets'; did you mean reset?"),
        ("user list", "unknown command 'user'; there are serve, "),
        ("stop", "unknown command 'stop'; there are serve, "),
        ("produce orders --vlaue 3", "unknown option '--vlaue'\n"),
        ("gte orders 0 1", "did you mean get?"),
        ("-b h:1 topic list", "unknown option '-b'; options come last, as in `cairn topic list -b HOST:PORT`"),
        ("--timeout 3 topic list", "unknown option '--timeout'; options come last"),
        ("--versoin", "did you mean --version?"),
    ],
)
def test_near_misses_are_suggested(line: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(line.split())
    assert said in capsys.readouterr().err


def test_without_a_command_there_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    shown = capsys.readouterr().out
    with pytest.raises(SystemExit, match="0"):
        main(["help"])
    assert capsys.readouterr().out == shown
    assert set(COMMANDS) <= {line.split()[0] for line in shown.splitlines() if line.startswith("    ")}
    with pytest.raises(SystemExit, match="0"):
        main(["help", "topic"])
    assert "add-partitions" in capsys.readouterr().out


@pytest.mark.parametrize("line", ["topic", "cluster", "group offsets"])
def test_without_an_action_there_is_help_too(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(line.split())
    shown = capsys.readouterr()
    with pytest.raises(SystemExit, match="0"):
        main([*line.split(), "-h"])
    assert (shown.out, shown.err) == ("", capsys.readouterr().out)


def test_every_command_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    for command in COMMANDS:
        with pytest.raises(SystemExit, match="0"):
            main([command, "-h"])
        assert f"cairn {command}" in capsys.readouterr().out


def test_one_command_does_not_load_the_others() -> None:
    script = (
        "import sys; from cairnmq.cli.main import build_parser; build_parser('serve');"
        "heavy = ('cairnmq.client', 'cairnmq.wire', 'cairnmq.storage', 'asyncio');"
        "print([m for m in sys.modules if m.startswith(heavy)])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    assert len(build_parser()._subparsers._group_actions[0].choices) == len(COMMANDS)  # type: ignore[union-attr, arg-type]


def test_a_reader_that_leaves_is_no_error() -> None:
    done = without_reader("-m", "cairnmq.cli.main", "completion", "bash")
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("findings", [0, 1, 20_000])
def test_findings_stay_findings_when_their_reader_leaves(findings: int) -> None:
    """Few are written when the command is done, many in the middle of it."""
    script = (
        "import sys; from cairnmq.storage.check import verify; from cairnmq.cli.main import main;"
        f"verify.verify = lambda *_: iter(['a finding'] * {findings});"
        "sys.exit(main(['verify', '/x']))"
    )
    done = without_reader("-c", script)
    assert done.returncode == (1 if findings else 0)
    assert b"Error" not in done.stderr


def test_several_directories_are_verified_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(tmp_path / "a"), str(tmp_path / "b")]) == 1
    said = capsys.readouterr()
    assert said.out.splitlines() == [f"{tmp_path}/{name}: not a CairnMQ data directory" for name in "ab"]
    assert "2 problems found" in said.err


def test_a_directory_is_not_compared_with_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert main(["verify", str(tmp_path / "a"), str(tmp_path / "c"), str(tmp_path / "b")]) == 2
    assert f"{tmp_path}/a and {tmp_path}/b are the same directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        ("cluster.db", "expected sqlite:PATH"),
        ("sqlite:", "expected sqlite:PATH"),
        ("sqlite:/no/such.db", "no such file"),
    ],
)
def test_shared_metadata_that_verify_cannot_find(
    metadata: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(tmp_path), "--metadata", metadata]) == 2
    assert text in capsys.readouterr().err


def without_reader(*words: str) -> subprocess.CompletedProcess[bytes]:
    """Python, with a stdout that nobody reads."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        return subprocess.run([sys.executable, *words], stdout=write_end, stderr=subprocess.PIPE, timeout=120)
    finally:
        os.close(write_end)


def test_no_colours_away_from_a_terminal() -> None:
    done = cairn("topic", "list", "-b", "127.0.0.1:1")
    assert done.returncode == 1 and "\x1b" not in done.stderr
