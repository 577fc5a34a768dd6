"""`cairn cluster forget`: a broker that will not come back is no longer one of the cluster."""

from __future__ import annotations

import argparse

from cairnmq.cli.arguments import connect
from cairnmq.cli.terminal import note, write_json


def run_forget(arguments: argparse.Namespace) -> int:
    from cairnmq.client.cluster import forget_broker

    with connect(arguments, patient=False) as client:
        client.run(forget_broker(client.session, arguments.broker))
    if arguments.json:
        write_json({"forgotten": arguments.broker})
    else:
        note(f"broker {arguments.broker} is forgotten")
    return 0
