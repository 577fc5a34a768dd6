"""What replication decides, without I/O: who leads a journal, which replicas are in sync, what may be acknowledged.

Positions, views of the metadata store and times come in as arguments; positions and proposed changes go out. The rules
(R1 to R35) are in docs/replication.md. `cairnmq.testing.replicas` runs these parts against simulated machines, a
simulated store and a simulated network; the broker does not use them yet (docs/roadmap.md).
"""
