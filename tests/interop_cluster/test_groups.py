"""The tests of tests/interop/test_groups.py again, against three brokers."""

from interop.test_groups import *
