"""The one place where the broker looks into member metadata: which topics a consumer subscribes to."""

from __future__ import annotations

from cairnmq.wire.codec import Malformed, decode
from cairnmq.wire.messages import ConsumerProtocolSubscription

CONSUMER = "consumer"


def subscribed_topics(metadata: bytes) -> list[str] | None:
    """The topics in a consumer's subscription; None if it cannot be read (then nothing may be concluded from it)."""
    if len(metadata) < 2:
        return None
    try:
        # Every version begins with the fields of version 0, so that is enough, and versions to come can be read too.
        subscription, _ = decode(ConsumerProtocolSubscription, 0, metadata, 2)
    except Malformed:
        return None
    return subscription.topics
