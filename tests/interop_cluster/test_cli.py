"""The tests of tests/interop/test_cli.py again, against three brokers."""

from interop.test_cli import *
