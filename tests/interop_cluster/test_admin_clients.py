"""The tests of tests/interop/test_admin_clients.py again, against three brokers."""

from interop.test_admin_clients import *
