"""Broker settings from a file, the environment, --set and flags (later ones win); every error names its source."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from cairnmq.errors import ErrorCode, Refusal
from cairnmq.settings.broker import BrokerConfig, Layers, broker_config, validate
from cairnmq.settings.broker_table import ALIASES, BROKER, FORMER_NAMES
from cairnmq.settings.definition import Setting, nearest, split_list
from cairnmq.settings.known import WITHOUT_MEANING, is_known
from cairnmq.settings.properties import parse_properties

PREFIX = "CAIRN_"
_OTHER_NAMES = ALIASES | FORMER_NAMES
NOT_SETTINGS = ("CAIRN_BOOTSTRAP", "CAIRN_HTTP", "CAIRN_COMPLETION_", "CAIRN_CHAOS_", "CAIRN_INTEROP_", "CAIRN_TEST_")
"""Beginnings of variables that other commands and the test suites read."""


class Given(Struct, frozen=True, gc=False):
    """A setting as somebody wrote it, and where."""

    name: str
    text: str
    where: str


class Loaded(Struct, frozen=True):
    """The settings, and what to tell the user once."""

    config: BrokerConfig
    warnings: tuple[str, ...]


def load(
    *,
    file: tuple[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    sets: Sequence[tuple[str, str]] = (),
    flags: Mapping[str, str] | None = None,
    in_cluster: bool = False,
) -> Loaded | Refusal:
    """`file`: its name and content. `flags`: settings that a flag stands for, by their names. All errors at once."""
    groups: list[list[Given] | Refusal] = [
        [] if file is None else from_file(*file),
        from_environment(environment or {}),
        [Given(name, text, f"--set {name}") for name, text in sets],
        [Given(name, text, f"flag for {name}") for name, text in (flags or {}).items()],
    ]
    problems: list[str] = []
    warnings: list[str] = []
    chosen: dict[str, Given] = {}
    for group in groups:
        if isinstance(group, Refusal):
            problems.append(group.message)
            continue
        for given in sorted(group, key=lambda one: one.name not in _OTHER_NAMES):
            name = _OTHER_NAMES.get(given.name, given.name)
            chosen[name] = Given(name, given.text, given.where)
    settled = _plain_listeners(chosen)
    for given in settled.values():
        refusal = _refused(given, Layers(in_cluster=in_cluster).table)
        if refusal is not None:
            problems.append(f"{given.where}: {refusal.message}")
        elif given.name not in BROKER:
            warnings.append(f"{given.where}: {given.name} has no effect here and is ignored")
    if problems:
        return Refusal(ErrorCode.INVALID_CONFIG, "\n".join(problems))
    static = {name: given.text for name, given in settled.items() if name in BROKER}
    config = broker_config(static, in_cluster=in_cluster)
    return config if isinstance(config, Refusal) else Loaded(config, tuple(warnings))


def from_file(name: str, content: str) -> list[Given] | Refusal:
    """TOML, or properties if the name says so."""
    if name.endswith(".properties"):
        return [Given(key, text.strip(), f"{name} line {line}") for line, key, text in parse_properties(content)]
    try:
        return list(_flattened(tomllib.loads(content), "", name))
    except (tomllib.TOMLDecodeError, TypeError) as error:
        return Refusal(ErrorCode.INVALID_CONFIG, f"{name}: {error}")


def from_environment(environment: Mapping[str, str]) -> list[Given] | Refusal:
    """Variables with our prefix. An unknown one is an error."""
    names = {variable(name): name for name in (*WITHOUT_MEANING, *_OTHER_NAMES, *BROKER)}
    found, problems = [], []
    for key, text in sorted(environment.items()):
        if not key.startswith(PREFIX) or key.startswith(NOT_SETTINGS):
            continue
        if key in names:
            found.append(Given(names[key], text, f"environment {key}"))
        else:
            problems.append(f"environment: unknown variable {key}{nearest(key, names)}")
    return Refusal(ErrorCode.INVALID_CONFIG, "\n".join(problems)) if problems else found


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + name.removeprefix("cairn.").upper().replace(".", "_")


def _refused(given: Given, table: Mapping[str, Setting]) -> Refusal | None:
    if given.name == "authorizer.class.name" and given.text:
        # A broker without access control must not start from a file that configures an authorizer.
        return Refusal(ErrorCode.INVALID_CONFIG, "authorizer.class.name: access control is not supported yet")
    return None if given.name not in BROKER and is_known(given.name) else validate(given.name, given.text, table)


def _plain_listeners(chosen: Mapping[str, Given]) -> dict[str, Given]:
    """Translate listeners of KRaft files, which also list the controller's listener and name each listener."""
    given = dict(chosen)
    controllers = set(split_list(_text(given, "controller.listener.names")))
    protocols = dict(
        (item.partition(":")[0], item.partition(":")[2])
        for item in split_list(_text(given, "listener.security.protocol.map"))
    )
    for name in ("listeners", "advertised.listeners"):
        if name not in given:
            continue
        kept = []
        for listener in split_list(given[name].text):
            label, separator, address = listener.partition("://")
            if separator and label in controllers:
                continue
            kept.append(f"{protocols[label]}://{address}" if separator and label in protocols else listener)
        given[name] = Given(name, ",".join(kept), given[name].where)
    return given


def _text(given: Mapping[str, Given], name: str) -> str:
    return given[name].text if name in given else ""


def _flattened(table: Mapping[str, object], prefix: str, where: str) -> Iterator[Given]:
    for key, value in table.items():
        name = prefix + key
        if isinstance(value, dict):
            yield from _flattened(value, name + ".", where)
        else:
            yield Given(name, _as_text(name, value), where)


def _as_text(name: str, value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int() | float() | str():
            return str(value)
        case list():
            return ",".join(_as_text(name, item) for item in value)
        case _:
            raise TypeError(f"{name}: a value of type {type(value).__name__} cannot be a setting")
