"""The tests of tests/interop/test_compacted.py again, against three brokers."""

from interop.test_compacted import *
