"""CairnMQ: a message queue that speaks the Kafka protocol; many queues, few journals."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cairnmq.local_broker import Broker

__version__ = "0.1.0"  # pyproject.toml says the same; a test compares them, because reading it there costs 30 ms
__all__ = ["Broker", "__version__"]


def __getattr__(name: str) -> object:
    """`cairnmq.Broker` is imported when it is asked for: the broker process itself never is."""
    if name == "Broker":
        from cairnmq.local_broker import Broker

        return Broker
    raise AttributeError(f"module 'cairnmq' has no attribute {name!r}")
