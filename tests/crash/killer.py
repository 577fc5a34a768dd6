"""One kill -9 of a chosen kind, and the broker back: whole tree, one process, or inside a named phase."""

from __future__ import annotations

import psutil

from broker_process import Broker, wait_until

SECONDS = 120.0
WHOLE = ("whole-tree", "broker-alone", "splitter-alone")
# Phase -> at which arrival there the process dies: what happens all the time is let pass a while.
PHASES = {
    "journal-write": 30,
    "journal-sync": 20,
    "journal-roll": 2,
    "split-round": 2,
    "checkpoint-sync": 1,
    "checkpoint-publish": 1,
    "checkpoint-report": 1,
    "retention-delete": 1,
    "journal-delete": 1,
}
RECOVERY_PHASES = ("recovery-scan", "recovery-cut")


def dead(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def tear_journal(broker: Broker) -> None:
    """Half an entry at the end of the journal, as a kill in the middle of a write leaves it."""
    assert broker.journal_dir is not None
    newest = max(broker.journal_dir.rglob("*.jnl"), key=lambda path: path.name)
    with newest.open("ab") as journal:
        journal.write(b"\x7fhalf an entry" * 3)


class Killer:
    """Carries out one kill and brings the broker back."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def kill(self, kind: str) -> None:
        if kind in PHASES:
            self.in_phase(kind)
        elif kind in RECOVERY_PHASES:
            self.in_recovery(kind)
        elif kind == "splitter-alone":
            self.splitter()
        elif kind == "broker-alone":
            # Its splitter may still be there when the successor starts: nothing waits for it.
            self.broker.kill_broker()
            self.broker.start()
        else:
            self.broker.kill_tree()
            self.broker.start()

    def splitter(self) -> None:
        """The broker goes on and finds itself a new one."""
        pid, old = self.broker.pid, self.broker.kill_splitter()

        def replaced() -> bool:
            now = self.broker.splitter()
            return now is not None and now.pid != old.pid

        wait_until(replaced, SECONDS, "a new splitter")
        assert self.broker.running and self.broker.pid == pid, "the broker did not outlive its splitter"

    def in_phase(self, phase: str) -> None:
        """A clean restart arms the point, so that the acknowledgements since the last kill stay counted."""
        assert self.broker.stop() == 0
        self.broker.launch(cairn_fault_point=f"{phase}:{PHASES[phase]}")
        splitters: list[psutil.Process] = []

        def struck() -> bool:
            if not splitters and (splitter := self.broker.splitter()) is not None:
                splitters.append(splitter)
            return not self.broker.running or any(dead(splitter) for splitter in splitters)

        wait_until(struck, SECONDS, f"the kill at {phase}")
        if self.broker.running:
            self.broker.kill_tree()
        else:
            assert self.broker.wait_dead() == -9, f"the broker ended before it came to {phase}"
        self.broker.start()

    def in_recovery(self, phase: str) -> None:
        self.broker.kill_tree()
        tear_journal(self.broker)
        self.broker.launch(cairn_fault_point=phase)
        assert self.broker.wait_dead() == -9, f"the broker did not die at {phase}"
        self.broker.start()
