# cython: language_level=3, boundscheck=False, wraparound=False
"""Kernel of fetch_rows.py: a fetch may name a thousand partitions of which a few have their turn."""

from libc.stdint cimport int64_t

from cairnmq.broker.requests.fetch_rows import NO_RECORDS, NONE_ABORTED
from cairnmq.broker.requests.fetch_rows import find_queues as _find_queues
from cairnmq.errors import ErrorCode
from cairnmq.metadata.image import QueueRange
from cairnmq.storage.api.serving import Queue
from cairnmq.storage.api.serving import QueueSpec
from cairnmq.storage.api.serving import QueueState
from cairnmq.wire.messages import FetchRequest, FetchResponse

include "../../codec/struct_field.pxi"

cdef object _Queue = Queue
cdef object _State = QueueState
cdef object _Spec = QueueSpec
cdef object _Range = QueueRange
cdef object _Asked = FetchRequest.FetchPartition
cdef object _Data = FetchResponse.PartitionData
cdef object _UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
cdef object _NO_RECORDS = NO_RECORDS
cdef object _NONE_ABORTED = NONE_ABORTED
cdef object DIVERGING_EPOCH = FetchResponse.PartitionData().diverging_epoch
cdef object CURRENT_LEADER = FetchResponse.PartitionData().current_leader
cdef object SNAPSHOT_ID = FetchResponse.PartitionData().snapshot_id

cdef Py_ssize_t ASKED_PARTITION = cairn_field_place(_Asked, "partition")
cdef Py_ssize_t ASKED_EPOCH = cairn_field_place(_Asked, "current_leader_epoch")
cdef Py_ssize_t ASKED_OFFSET = cairn_field_place(_Asked, "fetch_offset")
cdef Py_ssize_t ASKED_LAST_EPOCH = cairn_field_place(_Asked, "last_fetched_epoch")
cdef Py_ssize_t RANGE_FIRST = cairn_field_place(_Range, "first")
cdef Py_ssize_t RANGE_COUNT = cairn_field_place(_Range, "count")
cdef Py_ssize_t QUEUE_JOURNAL = cairn_field_place(_Queue, "journal")
cdef Py_ssize_t QUEUE_SPEC = cairn_field_place(_Queue, "spec")
cdef Py_ssize_t QUEUE_STATE = cairn_field_place(_Queue, "state")
cdef Py_ssize_t QUEUE_END = cairn_field_place(_Queue, "end")
cdef Py_ssize_t QUEUE_CUT_SHORT = cairn_field_place(_Queue, "cut_short")
cdef Py_ssize_t QUEUE_VISIBLE = cairn_field_place(_Queue, "high_watermark")
cdef Py_ssize_t STATE_START = cairn_field_place(_State, "log_start")
cdef Py_ssize_t STATE_TRANSACTIONS = cairn_field_place(_State, "transactions")
cdef Py_ssize_t SPEC_ID = cairn_field_place(_Spec, "queue_id")


def find_queues(ctx, topic, list asked):
    cdef list found = []
    cdef dict live, led
    cdef object journal = None
    cdef int64_t first, count, partition, said, epoch = -1
    if topic is None or len(topic.partitions) != 1:
        return _find_queues(ctx, topic, asked)
    queues = topic.partitions[0]
    if type(queues) is not _Range:
        return _find_queues(ctx, topic, asked)
    first, count = cairn_field(queues, RANGE_FIRST), cairn_field(queues, RANGE_COUNT)
    live = ctx.store.queues
    led = ctx.leadership.led
    for one in asked:
        if type(one) is not _Asked:
            return _find_queues(ctx, topic, asked)
        partition = cairn_field(one, ASKED_PARTITION)
        said = cairn_field(one, ASKED_EPOCH)
        if not 0 <= partition < count:
            found.append(_UNKNOWN)
            continue
        queue = live.get(first + partition)
        if type(queue) is not _Queue:
            return _find_queues(ctx, topic, asked)
        its_journal = cairn_field(queue, QUEUE_JOURNAL)
        if its_journal is not journal:  # which two neighbours often share
            its_epoch = led.get(its_journal)
            if its_epoch is None:
                return _find_queues(ctx, topic, asked)
            journal, epoch = its_journal, its_epoch
        if said >= 0 and said != epoch:
            return _find_queues(ctx, topic, asked)
        found.append(queue)
    return found


def pass_over(list asked, list queues, dict live, list answers, bint full, bint committed):
    cdef Py_ssize_t index = len(answers), count = min(len(asked), len(queues))
    cdef int64_t offset, last_epoch
    cdef object aborted = _NONE_ABORTED if committed else None
    while index < count:
        one = asked[index]
        queue = queues[index]
        if type(queue) is not _Queue or type(one) is not _Asked:
            return index
        state = cairn_field(queue, QUEUE_STATE)
        spec = cairn_field(queue, QUEUE_SPEC)
        if type(state) is not _State or type(spec) is not _Spec or live.get(cairn_field(spec, SPEC_ID)) is not queue:
            return index
        if cairn_field(queue, QUEUE_CUT_SHORT) is not False:
            return index
        offset = cairn_field(one, ASKED_OFFSET)
        last_epoch = cairn_field(one, ASKED_LAST_EPOCH)
        visible = cairn_field(queue, QUEUE_VISIBLE)
        start = cairn_field(state, STATE_START)
        stable = visible if cairn_field(state, STATE_TRANSACTIONS) is None else queue.last_stable
        if last_epoch >= 0 or not <int64_t>start <= offset <= <int64_t>cairn_field(queue, QUEUE_END):
            return index
        if not full and offset < <int64_t>(stable if committed else visible):
            return index
        answers.append(
            _Data(
                cairn_field(one, ASKED_PARTITION),
                0,
                visible,
                stable,
                start,
                DIVERGING_EPOCH,
                CURRENT_LEADER,
                SNAPSHOT_ID,
                aborted,
                -1,
                _NO_RECORDS,
            )
        )
        index += 1
    return index
