"""The replication core against simulated machines: one thread, one seed, virtual time.

`schedule` moves time and messages, `sim_store` is the metadata store with sessions, away and in doubt, `machine` has
disks that forget what was not synced, `broker_process` plays the broker's shell, `world` strikes all of them, and
`judge` knows the ack table. The storage of a machine is a model here: a list of entries.
"""
