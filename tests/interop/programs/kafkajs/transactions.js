'use strict'
// Transactional producers, and reading and transforming with them.

const { randomUUID } = require('crypto')

const SECONDS = 20
const producers = new Map()

const open = async (kafka, transactionalId, transactionTimeout) => {
  const options = { transactionalId, transactionTimeout, maxInFlightRequests: 1, idempotent: true }
  const producer = kafka.producer(options)
  await producer.connect()
  return { producer, transaction: await producer.transaction() } // this asks for its id; nothing is begun at the broker
}

const send = async (opened, messages, topic) => {
  opened.transaction ??= await opened.producer.transaction()
  const [{ baseOffset }] = await opened.transaction.send({ topic, messages, acks: -1 })
  return messages.map((_, number) => Number(baseOffset) + number)
}

const end = async (opened, commit) => {
  const { transaction } = opened
  opened.transaction = null
  await (commit ? transaction.commit() : transaction.abort())
}

const consumer = (kafka, groupId, options) =>
  kafka.consumer({ groupId, allowAutoTopicCreation: false, maxWaitTimeInMs: 100, ...options })

// It has no word for the last stable offset: three fetches that bring nothing are the end.
const read = async (kafka, ask) => {
  const reader = consumer(kafka, `alone-${randomUUID()}`, { readUncommitted: !ask.committed })
  const found = []
  let silent = 0
  await reader.connect()
  await reader.subscribe({ topic: ask.topic, fromBeginning: true })
  try {
    await new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error('no end in time')), SECONDS * 1000)
      reader.on(reader.events.CRASH, ({ payload }) => reject(payload.error))
      reader.on(reader.events.FETCH, () => {
        silent += 1
        if (silent <= 3) return
        clearTimeout(timer)
        resolve()
      })
      const eachBatch = async ({ batch: { partition, messages } }) => {
        silent = 0
        for (const { offset, value } of messages) found.push([partition, Number(offset), value.toString()])
      }
      reader.run({ autoCommit: false, eachBatch }).catch(reject)
    })
  } finally {
    reader.disconnect().catch(() => undefined)
  }
  return found
}

const committed = async (admin, group, topic) => {
  const [{ partitions }] = await admin.fetchOffsets({ groupId: group, topics: [topic] })
  return partitions.map(({ partition, offset }) => ({ partition, offset: Math.max(0, Number(offset)) }))
}

// From one topic to another, until the group has committed all of it.
const transform = async (kafka, admin, ask) => {
  const { source, target, group } = ask
  const deadline = Date.now() + ask.seconds * 1000
  let opened = null
  let reader

  const goBack = async () => {
    const offsets = await committed(admin, group, source)
    for (const { partition, offset } of offsets) reader.seek({ topic: source, partition, offset: String(offset) })
  }

  const copy = async (partition, messages) => {
    await send(opened, messages.map(({ value }) => ({ value, partition })), target)
    const offset = String(Number(messages[messages.length - 1].offset) + 1)
    await opened.transaction.sendOffsets({
      consumerGroupId: group,
      topics: [{ topic: source, partitions: [{ partition, offset }] }],
    })
    await end(opened, true)
  }

  const eachBatch = async ({ batch, resolveOffset, heartbeat, isRunning, isStale }) => {
    if (opened === null) {
      // Only now is the end of the last transaction decided, and the group's offsets tell it.
      const heir = await open(kafka, ask.transactional_id, 10000)
      await goBack()
      opened = heir
      return
    }
    for (let at = 0; at < batch.messages.length && isRunning() && !isStale(); at += ask.batch) {
      const messages = batch.messages.slice(at, at + ask.batch)
      try {
        await copy(batch.partition, messages)
      } catch (problem) {
        opened.producer.disconnect().catch(() => undefined)
        opened = null
        return
      }
      resolveOffset(messages[messages.length - 1].offset)
      await heartbeat()
    }
  }

  // Some errors it takes for final, among them that the broker is away for long: then another one goes on.
  const consume = async () => {
    reader = consumer(kafka, group, { sessionTimeout: 6000, heartbeatInterval: 500 })
    reader.on(reader.events.CRASH, ({ payload }) => {
      if (!payload.restart && Date.now() < deadline) consume().catch(() => undefined)
    })
    await reader.connect()
    await reader.subscribe({ topic: source, fromBeginning: true })
    await reader.run({ autoCommit: false, eachBatchAutoResolve: false, eachBatch })
  }

  await consume()
  try {
    while (Date.now() < deadline) {
      const done = await committed(admin, group, source).catch(() => [])
      if (done.reduce((sum, { offset }) => sum + offset, 0) >= ask.count) return
      await new Promise((resolve) => setTimeout(resolve, 100))
    }
    throw new Error('not all was transformed in time')
  } finally {
    reader.disconnect().catch(() => undefined)
    opened?.producer.disconnect().catch(() => undefined)
  }
}

const OPS = {
  'txn.open': async (ask, { kafka }) => {
    producers.set(ask.producer, await open(kafka, ask.transactional_id, ask.timeout_ms))
  },
  'txn.send': async (ask) => {
    const messages = ask.values.map((value) => ({ value, partition: ask.partition }))
    return send(producers.get(ask.producer), messages, ask.topic)
  },
  'txn.end': async (ask) => end(producers.get(ask.producer), ask.commit),
  'txn.close': async (ask) => {
    producers.get(ask.producer).producer.disconnect().catch(() => undefined)
    producers.delete(ask.producer)
  },
  'txn.read': async (ask, { kafka }) => read(kafka, ask),
  'txn.transform': async (ask, { kafka, admin }) => transform(kafka, admin, ask),
}

module.exports = { OPS }
