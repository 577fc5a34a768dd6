"""The pages for operators are true: their blocks do what they are printed for, and the files of deploy/ are right."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Callable
from importlib import util
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from broker_process import Broker
from cairnmq.broker.metric_table import METRICS
from cairnmq.cli.main import build_parser
from cairnmq.client.admin import NewTopic
from cairnmq.client.blocking import Client
from cairnmq.settings.broker import broker_config
from cairnmq.settings.broker_table import BROKER
from pages.page import ROOT, Block, blocks
from pages.visitor import Visitor
from programs import require_program

DEPLOY = ROOT / "deploy"


def installed(block: Block) -> Block | None:
    """The block without what installs: this environment has it all."""
    if "python3 -m venv" in block.text:
        return None
    text = re.sub(r"^(pip install|\. env/bin/activate).*\n", "", block.text, flags=re.MULTILINE)
    return block._replace(text=text) if text else None


def done(visitor: Visitor, page: str, *, stop_before: Callable[[Block], bool] = lambda _: False) -> list[str]:
    said = []
    for block in blocks(page):
        step = installed(block)
        if step is None or step.language == "console":
            continue
        if stop_before(step):
            visitor.stop()
        said.append(visitor.do(step))
    return said


@pytest.fixture
def in_repository(visitor: Visitor) -> Visitor:
    shutil.copytree(DEPLOY, visitor.directory / "deploy")
    return visitor


def test_start(visitor: Visitor) -> None:
    said = done(visitor, "docs/start.md")
    assert [line for line in "".join(said).splitlines() if line.startswith("three cakes")] == ["three cakes"]
    assert "orders" in said[-1]


def test_deploy(in_repository: Visitor) -> None:
    said = done(in_repository, "docs/deploy.md")
    assert '"ready":true' in said[-1].replace(" ", "")
    logged = [json.loads(line) for line in in_repository.log().splitlines() if line.startswith("{")]
    assert {"time", "level", "logger", "message"} <= set(logged[0])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d", logged[0]["time"])


def test_monitor(visitor: Visitor) -> None:
    visitor.serve("cairn serve --data data")
    health, flags = done(visitor, "docs/monitor.md")
    assert "cairn_ready 1" in health
    assert "--log-level" in flags and "--log-format" in flags


def test_backup(visitor: Visitor) -> None:
    said = done(visitor, "docs/backup.md", stop_before=lambda block: block.text.startswith(("mkdir", "mv")))
    assert said[-1].splitlines()[-1] == "order 1"


def test_upgrade(visitor: Visitor) -> None:
    visitor.serve("cairn serve --data data")
    visitor.stop()
    said = done(visitor, "docs/upgrade.md")
    assert "cairn 0." in visitor.log() and said[-1]


# ------------------------------------------------------------------------------------------------ files of deploy/


def test_settings_file_holds_settings() -> None:
    values = {name: str(value).lower() for name, value in tomllib.loads((DEPLOY / "cairn.toml").read_text()).items()}
    assert values and set(values) <= set(BROKER)
    broker_config(values)


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    analyze = require_program("systemd-analyze")
    text = (DEPLOY / "cairnmq.service").read_text()
    cairn = Path(sys.executable).with_name("cairn")
    unit = tmp_path / "cairnmq.service"
    unit.write_text(text.replace("/opt/cairnmq/bin/cairn", str(cairn)))
    checked = subprocess.run([analyze, "verify", str(unit)], capture_output=True, text=True, timeout=60)
    about_it = [line for line in checked.stderr.splitlines() if "cairnmq" in line]
    assert (checked.returncode, about_it) == (0, []), checked.stderr
    command = next(line.partition("=")[2] for line in text.splitlines() if line.startswith("ExecStart="))
    assert_flags_exist(shlex.split(command)[1:])


def instructions() -> list[tuple[str, str]]:
    """Of the Dockerfile: (INSTRUCTION, the rest of its line)."""
    lines = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    split = [line.partition(" ") for line in lines if line.strip() and not line.startswith("#")]
    return [(name, rest) for name, _, rest in split]


def test_dockerfile_is_well_formed() -> None:
    known = {"FROM", "RUN", "WORKDIR", "COPY", "ENV", "USER", "VOLUME", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK",
             "ENTRYPOINT", "CMD"}  # fmt: skip
    found = instructions()
    assert {name for name, _ in found} <= known and found[0][0] == "FROM"
    users = [rest for name, rest in found if name == "USER"]
    assert users and users[-1] not in ("root", "0"), "not as root"
    copied = [rest.split()[:-1] for name, rest in found if name == "COPY" and not rest.startswith("--from")]
    missing = [source for sources in copied for source in sources if not (ROOT / source).exists()]
    assert missing == []
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert {source for sources in copied for source in sources} == kept


def test_the_image_s_command_and_health_check(visitor: Visitor) -> None:
    """Outside of a container: there is no Docker engine."""
    found = dict(instructions())
    command = [*json.loads(found["ENTRYPOINT"]), *json.loads(found["CMD"])]
    visitor.serve(shlex.join("data" if word == "/data" else word for word in command))
    visitor.run(shlex.join(json.loads(found["HEALTHCHECK"].partition("CMD ")[2])))


def test_compose_file_starts_one_broker_for_this_machine() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    (service,) = compose["services"].values()
    assert all(port.startswith("127.0.0.1:") for port in service["ports"]), "there is no authentication"
    assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).exists()
    assert [volume.partition(":")[0] for volume in service["volumes"]] == list(compose["volumes"])
    names = {name.removeprefix("CAIRN_").lower().replace("_", ".") for name in service["environment"]}
    assert all(name in BROKER or f"cairn.{name}" in BROKER for name in names)


def test_compose_file_starts_three_brokers_and_zookeeper() -> None:
    compose = yaml.safe_load((DEPLOY / "compose-cluster.yaml").read_text())
    services = compose["services"]
    brokers = [service for name, service in services.items() if name != "zookeeper"]
    assert len(brokers) == 3 and services["zookeeper"]["image"].startswith("zookeeper:3.9")
    volumes = [volume.partition(":")[0] for service in services.values() for volume in service["volumes"]]
    assert sorted(volumes) == sorted(compose["volumes"]), "each has its own"
    flags = [dict(zip(service["command"][1::1], service["command"][2::1], strict=False)) for service in brokers]
    for name in ("--node-id", "--rack", "--advertise", "--internal"):
        assert len({each[name] for each in flags}) == 3, name
    assert {each["--metadata"] for each in flags} == {"zookeeper://zookeeper:2181/cairn"}
    for (name, service), each in zip(services.items(), [{}, *flags], strict=True):
        if name == "zookeeper":
            assert "ports" not in service, "only brokers reach it"
            continue
        assert_flags_exist(service["command"])
        assert each["--internal"].partition(":")[0] == name
        port = each["--advertise"].rpartition(":")[2]
        assert f"127.0.0.1:{port}:9092" in service["ports"]
        assert all(published.startswith("127.0.0.1:") for published in service["ports"]), "there is no authentication"
        assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).exists()
        assert service["depends_on"] == ["zookeeper"]
        assert "cairn.cluster.secret" in BROKER and "CAIRN_CLUSTER_SECRET" in service["environment"]
    assert "[cluster]" in (DEPLOY / "Dockerfile").read_text(), "ZooKeeper's client is in the image"


def assert_flags_exist(words: list[str]) -> None:
    build_parser(words[0]).parse_args(words)


# ------------------------------------------------------------------------------------------------------- monitoring


def generator() -> ModuleType:
    spec = util.spec_from_file_location("generate_monitoring", ROOT / "tools" / "generate_monitoring.py")
    assert spec is not None and spec.loader is not None
    module = util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_dashboard_rules_and_tables_are_current() -> None:
    """`python tools/generate_monitoring.py` makes them."""
    stale = [path for path, text in generator().files().items() if (ROOT / path).read_text() != text]
    assert stale == []


def test_alerts_are_about_metrics_that_exist() -> None:
    (group,) = yaml.safe_load((DEPLOY / "prometheus-alerts.yml").read_text())["groups"]
    assert len(group["rules"]) == len({rule["alert"] for rule in group["rules"]}) > 5
    for rule in group["rules"]:
        named = set(re.findall(r"\b(?:cairn|kafka|process)_\w+", rule["expr"]))
        assert named or rule["expr"].startswith("up{"), rule
        unknown = {name for name in named if name not in METRICS and name.removesuffix("_bucket") not in METRICS}
        assert unknown == set(), rule
        assert rule["labels"]["severity"] in ("warning", "critical")
    configuration = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    assert all((DEPLOY / name).exists() for name in configuration["rule_files"])
    assert configuration["scrape_configs"][0]["job_name"] == "cairnmq"


def test_a_broker_with_traffic_has_every_metric_of_the_table(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker().start()
    with Client.connect(broker.bootstrap) as client:
        client.create_topics([NewTopic("measured", 1)])
    for command in (["produce", "measured"], ["consume", "measured", "-o", "start", "-e"]):
        line = [str(Path(sys.executable).with_name("cairn")), *command, "-b", broker.bootstrap]
        subprocess.run(line, input="some text\n", text=True, check=True, timeout=120, capture_output=True)
    with urllib.request.urlopen(f"{broker.http}/metrics", timeout=60) as response:
        text = response.read().decode()
    assert set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)) == set(METRICS)
    values = dict(re.findall(r'^(cairn_topic_bytes_\w+)\{topic="measured"\} (\d+)', text, re.MULTILINE))
    assert int(values["cairn_topic_bytes_in_total"]) == int(values["cairn_topic_bytes_out_total"]) > 60
    assert re.search(r'^cairn_build_info\{version="[\d.]+",kernels="[^"]+",python="3\.[\d.]+"\} 1$', text, re.MULTILINE)
    assert float(re.search(r"^process_resident_memory_bytes (\d+)", text, re.MULTILINE)[1]) > 1 << 20  # type: ignore[index]
