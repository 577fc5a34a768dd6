"""What somebody meant by a command, option or field that does not exist: a name of another tool, or a typo."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

# What kafka-*, rpk and kcat call it. The first meaning that exists here counts; it may have several words.
ELSEWHERE = {
    "start": ("serve",),
    "server": ("serve",),
    "run": ("serve",),
    "cat": ("consume",),
    "tail": ("consume",),
    "perf": ("bench",),
    "check": ("verify",),
    "status": ("cluster",),
    "health": ("cluster health",),
    "broker": ("cluster",),
    "brokers": ("cluster",),
    "transaction": ("txn",),
    "transactions": ("txn",),
    "version": ("--version",),
    "list": ("topic list",),
    "create": ("topic create",),
    "describe": ("topic describe",),
    "delete": ("topic delete",),
    "alter": ("topic alter",),
    "ls": ("list", "topic list"),
    "rm": ("delete", "topic delete"),
    "remove": ("delete",),
    "show": ("describe",),
    "info": ("describe", "cluster info"),
    "update": ("alter",),
    "truncate": ("trim",),
    "delete-records": ("trim",),
    "reset-offsets": ("reset",),
    "seek": ("reset",),
    "--from-beginning": ("-o start",),
    "--max-messages": ("--count",),
    "--num": ("--count",),
    "--bootstrap-server": ("--bootstrap",),
    "--brokers": ("--bootstrap",),
    "--replication-factor": ("--replicas",),
    "--host": ("--listen",),
    "--port": ("--listen",),
    "--verbose": ("--log-level debug",),
}
_ALIKE = 0.75  # `user` is not `cluster`


def meant_by(word: str, known: Collection[str]) -> str | None:
    """The known word, with what has to follow it."""
    for meaning in ELSEWHERE.get(word, ()):
        if meaning.split(" ")[0] in known:
            return meaning
    typed, is_option = word.lstrip("-"), word.startswith("-")
    alike = [each for each in known if (each.startswith("--") if is_option else not each.startswith("-"))]
    bare = {each.lstrip("-"): each for each in alike}
    found = [each for each in bare if sorted(each) == sorted(typed)] or get_close_matches(typed, bare, 1, _ALIKE)
    return bare[found[0]] if found else None
