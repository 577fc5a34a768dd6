"""When a server came to rest is told from its CPU time, second by second."""

from __future__ import annotations

import subprocess
import sys
from types import TracebackType

from bench.usage import QUIET_SHARE, Calm, Tree

PROGRAM = "import sys; held = b'x' * int(sys.argv[1]); print('ready', flush=True); sys.stdin.read()"


class Idle:
    """A process that holds so many bytes, until its input ends."""

    def __init__(self, size: int) -> None:
        line = [sys.executable, "-c", PROGRAM, str(size)]
        self.process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.pid = self.process.pid
        assert self.process.stdout is not None and self.process.stdout.readline() == b"ready\n"

    def __enter__(self) -> Idle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.communicate()


def test_quiet_begins_when_work_ends_and_its_own_cost_is_left_out() -> None:
    calm = Calm.begin(0.0, 10.0)
    calm.look(1.0, 11.0)
    calm.look(2.0, 11.01)
    calm.look(3.0, 11.02)
    assert (calm.since, calm.cpu, calm.lasts) == (1.0, 11.0, 2.0)


def test_work_that_was_put_off_begins_it_anew() -> None:
    calm = Calm.begin(0.0, 10.0)
    calm.look(4.0, 10.0)
    calm.look(5.0, 10.0 + QUIET_SHARE * 1.5)
    assert (calm.since, calm.lasts) == (5.0, 0.0)
    calm.look(6.0, calm.cpu)
    assert calm.lasts == 1.0


def test_a_late_look_asks_for_no_less_quiet() -> None:
    calm = Calm.begin(0.0, 0.0)
    calm.look(10.0, 9 * QUIET_SHARE)
    assert calm.lasts == 10.0
    calm.look(20.0, 19.5 * QUIET_SHARE)
    assert calm.lasts == 0.0


def test_three_brokers_may_do_as_much_each_as_one_alone() -> None:
    calm = Calm.begin(0.0, 0.0, 3 * QUIET_SHARE)
    calm.look(1.0, 2.5 * QUIET_SHARE)
    assert calm.lasts == 1.0
    calm.look(2.0, 6.0 * QUIET_SHARE)
    assert calm.lasts == 0.0


def test_of_a_cluster_cpu_counts_together_and_memory_of_the_largest() -> None:
    with Idle(0) as small, Idle(64 << 20) as large:
        both = Tree(small.pid, large.pid)
        assert len(both.processes()) == 2
        assert 64 < both.pss_mb() < 1.5 * Tree(large.pid).pss_mb()
        assert both.pss_mb() > 2 * Tree(small.pid).pss_mb()
        assert both.cpu() >= Tree(large.pid).cpu()
