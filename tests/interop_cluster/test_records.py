"""The tests of tests/interop/test_records.py again, against three brokers."""

from interop.test_records import *
