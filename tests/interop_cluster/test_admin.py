"""The tests of tests/interop/test_admin.py again, against three brokers."""

from interop.test_admin import *
