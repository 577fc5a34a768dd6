'use strict'
// Group members that commit what they have shown.

class Member {
  constructor(name, print) {
    this.name = name
    this.print = print
    this.owned = []
  }

  tell(event, more) {
    const at = Math.round((performance.timeOrigin + performance.now()) * 1000)
    this.print({ event, member: this.name, at, ...more })
  }

  drop() {
    if (this.owned.length > 0) this.tell('revoked', { partitions: this.owned })
    this.owned = []
  }

  async join(kafka, ask) {
    this.consumer = kafka.consumer({
      groupId: ask.group,
      allowAutoTopicCreation: false,
      sessionTimeout: ask.session_ms,
      rebalanceTimeout: 10000,
      heartbeatInterval: ask.heartbeat_ms,
      metadataMaxAge: ask.metadata_ms,
      maxWaitTimeInMs: 100,
      retry: { initialRetryTime: 50, maxRetryTime: 300, retries: 100 },
    })
    const { GROUP_JOIN, REBALANCING, CRASH } = this.consumer.events
    this.consumer.on(REBALANCING, () => this.drop())
    this.consumer.on(GROUP_JOIN, ({ payload }) => {
      this.drop()
      this.owned = Object.entries(payload.memberAssignment).flatMap(([topic, list]) => list.map((each) => [topic, each]))
      this.tell('assigned', { partitions: this.owned })
    })
    // After most crashes it starts again by itself.
    this.consumer.on(CRASH, ({ payload }) => {
      this.drop()
      if (!payload.restart) this.tell('failed', { text: String(payload.error.stack) })
    })
    await this.consumer.connect()
    const topics = ask.pattern === null ? ask.topics : [new RegExp(ask.pattern)]
    await this.consumer.subscribe({ topics, fromBeginning: true })
    await this.consumer.run({
      autoCommit: false,
      eachBatchAutoResolve: true,
      eachBatch: async ({ batch, isStale, isRunning }) => {
        if (isStale() || !isRunning()) return
        const { topic, partition } = batch
        const records = batch.messages.map(({ offset, value }) => [topic, partition, Number(offset), value.toString()])
        this.tell('records', { records })
        await this.consumer.commitOffsets([{ topic, partition, offset: String(Number(batch.lastOffset()) + 1) }])
      },
    })
  }

  seek(ask) {
    this.consumer.seek({ topic: ask.topic, partition: ask.partition, offset: String(ask.offset) })
  }

  async leave() {
    this.drop() // before the broker may give it to another
    await this.consumer.disconnect()
    this.drop() // what it got while it was leaving
  }
}

module.exports = { Member }
