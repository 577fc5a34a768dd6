"""The tests of tests/interop/test_delivery.py again, against three brokers."""

from interop.test_delivery import *
