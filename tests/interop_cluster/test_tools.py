"""The tests of tests/interop/test_tools.py again, against three brokers."""

from interop.test_tools import *
