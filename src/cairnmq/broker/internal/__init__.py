"""Links between brokers: bytes of journals from leaders to followers. Thin shells around `wire.internal`."""
