"""The tests of tests/interop/test_produce.py again, against three brokers."""

from interop.test_produce import *
