"""Kills and pauses of one broker, whoever uses it."""

from __future__ import annotations

import signal
import time
from collections import Counter
from random import Random

import psutil

from broker_process import Broker, wait_until
from chaos.world import GOES_ON_SECONDS, verify
from crash.killer import RECOVERY_PHASES, Killer

PHASES = ("journal-write", "journal-sync", "split-round", "checkpoint-sync", "checkpoint-publish", *RECOVERY_PHASES)
"""Those that any load comes to; tests/crash has one for the others too."""


class Attacker:
    """Does one thing at a time to a broker, which runs again afterwards, and counts it."""

    def __init__(self, broker: Broker, rng: Random, tally: Counter[str]) -> None:
        self.broker = broker
        self.rng = rng
        self.tally = tally

    # Kills

    def kill_tree(self) -> None:
        self.broker.kill_tree()
        self.tally["kill -9"] += 1
        verify(self.broker, self.tally)
        self.broker.start()

    def kill_broker(self) -> None:
        """Its splitter may still be there when the successor starts: nothing waits for it."""
        self.broker.kill_broker()
        self.tally["kill -9"] += 1
        self.broker.start()

    def kill_splitter(self) -> None:
        wait_until(lambda: self.broker.splitter() is not None, GOES_ON_SECONDS, "a splitter")
        self.broker.kill_splitter()
        self.tally["kill -9"] += 1

    def crash_loop(self) -> None:
        """Killed while it recovers, at any moment, several times."""
        self.broker.kill_tree()
        self.tally["kill -9"] += 1
        for _ in range(self.rng.randint(1, 5)):
            self.broker.launch()
            time.sleep(self.rng.uniform(0.0, 0.7))
            self.rng.choice((self.broker.kill_tree, self.broker.kill_broker))()
            self.tally["kill -9"] += 1
            self.tally["kill -9 during a start"] += 1
        self.broker.start()

    def kill_in_phase(self) -> None:
        """At a named place in the code, of the broker, its splitter or a recovery."""
        phase = self.rng.choice(PHASES)
        Killer(self.broker).kill(phase)
        self.tally["kill -9"] += 2 if phase in RECOVERY_PHASES else 1

    def kill_in_stop(self) -> None:
        assert self.broker.process is not None
        self.broker.process.terminate()
        time.sleep(self.rng.uniform(0.0, 0.5))
        self.kill_tree()

    # Pauses

    def pause(self, *, splitter: bool) -> None:
        """SIGSTOP of one process, or of the broker with a kill at its end instead of SIGCONT."""
        wait_until(lambda: self.broker.splitter() is not None, GOES_ON_SECONDS, "a splitter")
        process = self.broker.splitter() if splitter else psutil.Process(self.broker.pid)
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        self.tally["SIGSTOP"] += 1
        time.sleep(self.rng.choice((0.05, 0.5, 2.0, 5.0)))
        if self.rng.random() < 0.25:
            self.kill_tree()
        else:
            process.send_signal(signal.SIGCONT)
