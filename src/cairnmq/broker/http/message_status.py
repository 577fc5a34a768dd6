"""Messages as people see them: the newest of a topic as JSON, cut to a length that a page can show."""

from __future__ import annotations

import asyncio
from codecs import getincrementaldecoder
from heapq import nlargest
from typing import TYPE_CHECKING, Any, TypeAlias

from cairnmq.broker.http.chunked import slices
from cairnmq.broker.storage_loop.newest_records import Seen
from cairnmq.codec.records import wrapped
from cairnmq.metadata.image import Topic
from cairnmq.storage.api.serving import Queue

if TYPE_CHECKING:
    from cairnmq.broker.context import Context

Json: TypeAlias = dict[str, Any]

MESSAGES_SHOWN = 50
MESSAGES_MAX = 100
PARTITIONS_MAX = 64  # that are read for one page
KEY_BYTES, VALUE_BYTES = 512, 4096  # what is longer is cut, and `key_bytes` and `value_bytes` say how long it is
HEADERS_SHOWN, HEADER_BYTES = 16, 256
_CONTROLS = dict.fromkeys([*range(9), 11, 12, *range(14, 32), *range(127, 160)])  # all but tab, line feed, return


async def messages(ctx: Context, topic: Topic, partition: int | None, limit: int) -> Json:
    """The newest messages of a topic, or of one partition. Of very many partitions, those that were written last."""
    queues: list[Queue] = []
    for part in slices(topic.queues()):
        for index, queue_id in part:
            queue = ctx.store.queues.get(queue_id)
            if queue is not None and partition in (None, index) and queue.high_watermark > queue.log_start:
                queues.append(queue)
        await asyncio.sleep(0)
    chosen = nlargest(PARTITIONS_MAX, queues, key=_written) if len(queues) > PARTITIONS_MAX else queues
    newest = await ctx.store.newest.find(chosen, max(1, min(limit, MESSAGES_MAX)))
    return {
        "topic": topic.name,
        "messages": [_message(seen) for seen in newest.records],
        "partitions": len(queues),
        "partitions_read": len(chosen),
        "complete": newest.complete,
        "problems": [{"partition": index, "error": text} for index, text in newest.failures],
    }


def _written(queue: Queue) -> int:
    """When, as far as memory knows: what is not split yet is the newest there is."""
    return queue.tail.timestamps[-1] if queue.tail else -1


def _message(seen: Seen) -> Json:
    record = seen.record
    shown: Json = {"partition": seen.queue.partition, "offset": record.offset, "timestamp": wrapped(record.timestamp)}
    _put(shown, "key", record.key, KEY_BYTES)
    _put(shown, "value", record.value, VALUE_BYTES)
    headers: list[Json] = []
    for name, value in record.headers[:HEADERS_SHOWN]:
        header: Json = {}
        _put(header, "key", name.encode("utf-8", "surrogateescape"), HEADER_BYTES)
        _put(header, "value", value, HEADER_BYTES)
        headers.append(header)
    shown |= {"headers": headers, "headers_count": len(record.headers)}
    if seen.transaction:
        shown["transaction"] = seen.transaction
    return shown


def _put(shown: Json, field: str, data: bytes | None, most: int) -> None:
    """Text as it is; what is not text in hexadecimal digits, and `_encoding` says so."""
    if data is None:
        shown[field] = None
        return
    shown[f"{field}_bytes"] = len(data)
    text = _text(data[:most], whole=len(data) <= most)
    if text is None:
        shown[f"{field}_encoding"] = "hex"
        text = data[: most // 4].hex(" ")
    shown[field] = text


def _text(data: bytes, *, whole: bool) -> str | None:
    try:
        text = getincrementaldecoder("utf-8")().decode(data, final=whole)  # the cut may go through a character
    except UnicodeDecodeError:
        return None
    return text if len(text.translate(_CONTROLS)) == len(text) else None
