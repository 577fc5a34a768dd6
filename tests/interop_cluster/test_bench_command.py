"""The tests of tests/interop/test_bench_command.py again, against three brokers."""

from interop.test_bench_command import *
