"""The tests of tests/interop/test_offsets.py again, against three brokers."""

from interop.test_offsets import *
