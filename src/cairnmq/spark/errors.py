"""What a Spark job is told when it cannot go on: a sentence with what, where, and what to do."""

from __future__ import annotations


class SparkSourceError(Exception):
    """Any of them; the text is meant for people."""


class OptionError(SparkSourceError):
    """An option, or the shape of the data, is not what can be read or written."""


class DataLoss(SparkSourceError):
    """Records that the query was to read are gone, or belong to another topic of the same name."""
