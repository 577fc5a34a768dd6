"""The Kafka protocol without sockets: messages, their bytes, their frames. May import types; does no I/O."""
