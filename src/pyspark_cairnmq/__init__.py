"""Spark looks for modules of this name and registers their DefaultSource: format("cairnmq") works by itself."""

from cairnmq.spark.source import CairnSource as DefaultSource

__all__ = ["DefaultSource"]
