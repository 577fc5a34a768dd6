"""The tests of tests/interop/test_transactions.py again, against three brokers."""

from interop.test_transactions import *
