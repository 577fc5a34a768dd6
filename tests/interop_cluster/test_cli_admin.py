"""The tests of tests/interop/test_cli_admin.py again, against three brokers."""

from interop.test_cli_admin import *
