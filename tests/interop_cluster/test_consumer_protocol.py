"""The tests of tests/interop/test_consumer_protocol.py again, against three brokers."""

from interop.test_consumer_protocol import *
