"""Whole brokers in one thread, from one seed (ADR 0033): their real shells on an event loop whose time, sockets and
threads are simulated, their splitters beside them, and our own client.
"""
