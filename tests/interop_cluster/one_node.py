"""What of tests/interop is not run against three brokers, and why. The list may only become shorter.

`test_one_node.py` fails if an entry names nothing, or if a file of tests/interop is neither here nor run.
"""

from __future__ import annotations

ONE_DISK = "about the one disk that there is"

FILES = {
    "test_demo.py": "`cairn demo` starts its own broker; test_local_cluster.py has the demo of three",
    "test_late_reader.py": "one connection to the one broker that leads all partitions",
    "test_local_cluster.py": "is about clusters already",
    "test_newest_versions.py": "a relay before the one broker, and one that advertises another address",
    "test_stored_as_sent.py": "a relay before the one broker",
    "test_testing_your_app.py": "about `cairnmq.Broker` and the pytest plugin, which start one broker",
    "test_wrong_port.py": "about the ports of one process",
}

ONE_NODE = {
    "test_admin_clients.py::test_a_replica_stays_where_it_is": ONE_DISK,
    "test_admin_clients.py::test_features_and_quorum": "one voter, which knows the end of its own journal",
    "test_admin_clients.py::test_log_dirs_tell_sizes": ONE_DISK,
    "test_admin_clients.py::test_nothing_is_reassigned": "assignments to the one broker, and to one that is not there",
    "test_cli.py::test_cluster_info_and_health": "shows the one broker; tests/cluster has health of three",
    "test_cli.py::test_verify_and_dump_read_what_a_broker_left": "one data directory; tests/cluster verifies three",
    "test_cli_admin.py::test_disks": ONE_DISK,
    "test_tools.py::test_log_dirs_and_versions": ONE_DISK,
    "test_tools.py::test_topics": "Kafka's tool prints leader, replicas and ISR of one broker",
}
