"""Batches that were refused for a moment, by queues that do not know their producer yet.

Such a queue takes any sequence for the first. Producers have several requests on their way: if the one behind such a
batch were taken, the batch itself would be out of order for ever.
"""

from __future__ import annotations

from collections import OrderedDict

from cairnmq.transactions.messages import Producer

MOST = 10_000  # of those whose producers never came back


class TurnedAway:
    """The lowest sequence of each producer in each queue."""

    def __init__(self) -> None:
        self._lowest: OrderedDict[tuple[int, int], tuple[int, int]] = OrderedDict()  # epoch and sequence

    def note(self, queue: int, producer: Producer, sequence: int) -> None:
        """A batch was refused, and will come again."""
        key = queue, producer.producer_id
        epoch, lowest = self._lowest.get(key, (producer.epoch, sequence))
        if epoch < producer.epoch:
            epoch, lowest = producer.epoch, sequence
        self._lowest[key] = epoch, min(lowest, sequence)
        if len(self._lowest) > MOST:
            self._lowest.popitem(last=False)

    def misses(self, queue: int, producer: Producer, sequence: int) -> bool:
        """Whether a batch that comes before this one was refused."""
        epoch, lowest = self._lowest.get((queue, producer.producer_id), (-1, 0))
        return epoch == producer.epoch and lowest < sequence

    def forget(self, queue: int, producer_id: int) -> None:
        """The queue knows the producer now, or its transaction is over."""
        self._lowest.pop((queue, producer_id), None)

    def forget_all(self) -> None:
        """This broker leads something no more."""
        self._lowest.clear()

    def __len__(self) -> int:
        return len(self._lowest)
