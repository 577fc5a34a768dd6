"""The tests of tests/interop/test_cli_consume.py again, against three brokers."""

from interop.test_cli_consume import *
