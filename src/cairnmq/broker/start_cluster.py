"""A start in a cluster: metadata that brokers share, registration, recovery as a follower, then the parts together.

In this order (R10): everything is read; the metadata are compared with what was found; the broker registers under a new
epoch; only then files are changed. What it leads and follows is said by the metadata from there on.
"""

from __future__ import annotations
