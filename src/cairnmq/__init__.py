"""CairnMQ: a message queue that speaks the Kafka protocol; many queues, few journals."""

__version__ = "0.1.0"  # pyproject.toml says the same; a test compares them, because reading it there costs 30 ms
