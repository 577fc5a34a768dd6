"""Flags, the settings file, the environment and --set as one: what the broker is started with."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from cairnmq.broker import logs
from cairnmq.broker.options import ServeOptions
from cairnmq.broker.start_errors import BadUsage
from cairnmq.errors import Refusal
from cairnmq.os_errors import reason_of
from cairnmq.settings.broker import BrokerConfig
from cairnmq.settings.sources import load

log = logging.getLogger("cairnmq.broker")

_MAPPED = {
    "listen": "listeners",
    "advertise": "advertised.listeners",
    "data": "log.dirs",
    "node_id": "node.id",
    "rack": "broker.rack",
}


def settle(options: ServeOptions, environment: Mapping[str, str]) -> tuple[ServeOptions, BrokerConfig]:
    """Raises BadUsage with every reason. The log goes by the settings from here on."""
    flags = {_MAPPED[name]: str(getattr(options, name)) for name in _MAPPED if name in options.given}
    loaded = load(
        file=_file_of(options),
        environment=environment,
        sets=options.settings,
        flags=flags,
        in_cluster=options.in_cluster,
    )
    if isinstance(loaded, Refusal):
        raise BadUsage(loaded.message)
    logs.configure(loaded.config.cairn_log_level, loaded.config.cairn_log_format)
    for warning in loaded.warnings:
        log.warning("%s", warning)
    settled = options.with_settings(loaded.config.layers.static)
    if isinstance(settled, Refusal):
        raise BadUsage(settled.message)
    refusal = settled.refusal(loaded.config.layers.static)
    if refusal is not None:
        raise BadUsage(refusal.message)
    return settled, loaded.config


def _file_of(options: ServeOptions) -> tuple[str, str] | None:
    """Its name and text."""
    if options.config is None:
        return None
    try:
        with open(options.config, encoding="utf-8") as source:
            return options.config, source.read()
    except UnicodeDecodeError as error:
        raise BadUsage(f"--config {options.config}: it is not a text file in UTF-8") from error
    except OSError as error:
        raise BadUsage(f"--config {options.config}: {reason_of(error)}") from error
