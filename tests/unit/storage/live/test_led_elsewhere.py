"""A journal that is led elsewhere refuses all that is staged."""

from __future__ import annotations

from cairnmq.errors import ErrorCode, Refusal
from cairnmq.storage.batches.admission import Span
from cairnmq.storage.batches.markers import Marker
from cairnmq.storage.files.format import Keyed
from cairnmq.storage.live.ack_policy import DURABLE, AckPoint
from cairnmq.types import SlotPlace
from unit.storage.cluster_harness import Cluster
from unit.storage.replica_harness import NOW, batch


def test_whatever_is_appended_is_refused_with_the_code_for_it() -> None:
    engine = Cluster().machines[2].engine
    appends, queue, fact = engine.appends, engine.queues[1], Keyed("s", b"k", b"v")
    refused = [
        appends.append(queue, batch(), -1, NOW),
        appends.append_kept(queue, [batch()], Span(0, 1), NOW),
        appends.move_start(queue, 1, NOW),
        appends.put_keyed(SlotPlace(9, 4), [fact], "commit", NOW),
        appends.put_witness(fact, "commit", NOW),
    ]
    for each in refused:
        assert isinstance(each, Refusal) and each.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    markers = appends.append_markers([Marker(1, 8, 0, True, 1)], NOW)
    assert markers.codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER] and not markers.waits
    assert engine.paths[4].journal.staged_end == engine.paths[4].journal.end


def test_who_waits_is_told_that_nobody_knows() -> None:
    appends, heard = Cluster().machines[2].engine.appends, list[bool]()
    appends.when(AckPoint(4, DURABLE, 0), heard.append)
    appends.when_certain(AckPoint(4, DURABLE, 0), heard.append)
    assert heard == [False, False]
