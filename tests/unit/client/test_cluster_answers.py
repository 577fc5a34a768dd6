"""Every broker is asked about journals, and their answers become one report."""

from __future__ import annotations

from cairnmq.client.blocking import Client
from cairnmq.client.cluster_answers import ask_brokers, told_of
from cairnmq.client.cluster_report import Led, ReplicaTold, merge
from cairnmq.replication.records import Member
from cairnmq.wire.messages import DescribeJournalsResponse, MetadataResponse
from scripted_broker import ScriptedBroker
from scripted_cluster import END, ScriptedCluster


def test_all_live_brokers_are_asked() -> None:
    cluster = ScriptedCluster()
    cluster.down, cluster.deaf = {3}, {2}
    cluster.behind = {(1, 2): 40}
    with cluster.running() as bootstrap, Client.connect(bootstrap) as client:
        answers = client.run(ask_brokers(client.session))
    assert answers.told.keys() == {1} and answers.silent.keys() == {2}
    assert "closed the connection" in answers.silent[2]
    told = answers.told[1]
    assert told.led == {1: Led(20, END, END, END, (ReplicaTold(2, END - 40, -1, 50), ReplicaTold(3, END, -1, 50)))}
    assert told.view.live == {1: 11, 2: 12} and told.session_age_ms == {1: 250, 2: 250}
    assert told.view.journals[2].record.leader == Member(2, 12)
    report = merge(answers.told, answers.silent)
    assert [row.state for row in report.brokers] == ["live", "silent", "down"]


def test_what_a_broker_says_of_itself_and_its_store() -> None:
    row = DescribeJournalsResponse.DescribedJournal(
        journal=4, epoch=3, replicas=[1], resigned=2, is_weak=True, recovered=1, unclean=2, trouble="disk full"
    )
    broker = DescribeJournalsResponse.DescribedBroker(
        node_id=1, broker_epoch=9, is_live=True, is_stopping=True, damaged=[4]
    )
    told = told_of(
        DescribeJournalsResponse(metadata_revision=8, metadata_away_ms=2500, brokers=[broker], journals=[row])
    )
    record = told.view.journals[4].record
    assert (record.leader, record.resigned, record.weak, record.recovered, record.unclean) == (None, 2, True, 1, 2)
    assert told.view.brokers[1].stopping and told.view.brokers[1].damaged == {4}
    assert (told.stopped, told.store_trouble, told.session_age_ms) == ({4: "disk full"}, "away for 2.5 s", {})


def test_what_fails_between_brokers_and_what_groups_wait_for() -> None:
    link = DescribeJournalsResponse.FailingLink(node_id=2, trouble="another cluster")
    told = told_of(DescribeJournalsResponse(links=[link], slots_trouble="3 brokers are needed"))
    assert (told.links, told.slots_trouble) == ({2: "another cluster"}, "3 brokers are needed")


def test_brokers_of_another_make_tell_nothing() -> None:
    node = MetadataResponse.MetadataResponseBroker(node_id=1, host="127.0.0.1")

    def script(request: object, header: object) -> MetadataResponse | None:
        node.port = broker.port
        return MetadataResponse(brokers=[node]) if "Metadata" in type(request).__name__ else None

    with ScriptedBroker(script) as broker, Client.connect(broker.bootstrap) as client:
        answers = client.run(ask_brokers(client.session))
    assert answers.told == {} and answers.silent.keys() == {1}
