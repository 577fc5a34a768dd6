'use strict'
// Producing, and reading as the only member of a group that nobody else knows: kafkajs has no other way to read.

const { randomUUID } = require('crypto')
const { Partitioners } = require('kafkajs')
const { CODECS } = require('./codecs')

const MILLIS = 20000
const LOG_APPEND_TIME = 1
const ACKS = { 0: 0, 1: 1, all: -1 }

const bytes = (text) => (text === null ? null : Buffer.from(text, 'base64'))
const text = (buffer) => (buffer === null || buffer === undefined ? null : Buffer.from(buffer).toString('base64'))

// Headers are an object; one that is repeated has an array.
const packed = (headers) => {
  const all = {}
  for (const [name, value] of headers) (all[name] ??= []).push(bytes(value))
  return Object.fromEntries(Object.entries(all).map(([name, list]) => [name, list.length === 1 ? list[0] : list]))
}

const unpacked = (headers) =>
  Object.entries(headers ?? {}).flatMap(([name, value]) =>
    (Array.isArray(value) ? value : [value]).map((each) => [name, text(each)])
  )

const got = (partition, message) => [
  partition,
  Number(message.offset),
  Number(message.timestamp),
  text(message.key),
  text(message.value),
  unpacked(message.headers),
  message.batchContext.timestampType === LOG_APPEND_TIME,
]

const produce = async (kafka, ask) => {
  const producer = kafka.producer({
    idempotent: ask.idempotent,
    createPartitioner: Partitioners.DefaultPartitioner,
    allowAutoTopicCreation: true,
  })
  await producer.connect()
  try {
    const messages = ask.records.map((record) => ({
      value: bytes(record.value),
      key: bytes(record.key),
      headers: packed(record.headers),
      ...(record.timestamp === null ? {} : { timestamp: String(record.timestamp) }),
      ...(record.partition === null ? {} : { partition: record.partition }),
    }))
    const told = await producer.send({
      topic: ask.topic,
      messages,
      acks: ACKS[ask.acks],
      compression: CODECS[ask.codec],
      timeout: MILLIS,
    })
    if (ask.acks === '0') return []
    // It tells the first offset of each partition; within a batch they are dense.
    const next = new Map(told.map(({ partition, baseOffset }) => [partition, Number(baseOffset)]))
    return ask.records
      .filter((record) => next.has(record.partition))
      .map(({ partition }) => {
        const offset = next.get(partition)
        next.set(partition, offset + 1)
        return offset
      })
  } finally {
    await producer.disconnect()
  }
}

const lonely = (kafka, options) =>
  kafka.consumer({
    groupId: `alone-${randomUUID()}`,
    allowAutoTopicCreation: false,
    maxWaitTimeInMs: 100,
    sessionTimeout: 10000,
    heartbeatInterval: 1000,
    ...options,
  })

const start = async (consumer, topic, places, eachBatch) => {
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  const running = consumer.run({ autoCommit: false, partitionsConsumedConcurrently: 1, eachBatch })
  for (const { partition, offset } of places) consumer.seek({ topic, partition, offset: String(offset) })
  await running
}

const read = async (kafka, admin, ask) => {
  const wanted = new Set(ask.partitions)
  const bounds = (await admin.fetchTopicOffsets(ask.topic)).filter(({ partition }) => wanted.has(partition))
  const left = new Map()
  const places = []
  for (const { partition, low, high } of bounds) {
    const offset = ask.start === -2 ? Number(low) : ask.start
    if (offset >= Number(high)) continue
    left.set(partition, Number(high))
    places.push({ partition, offset })
  }
  if (left.size === 0) return []
  const records = []
  const consumer = lonely(kafka, { maxBytesPerPartition: ask.size_max })
  try {
    await new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`${left.size} partitions not read to their end`)), MILLIS)
      consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
      start(consumer, ask.topic, places, async ({ batch, resolveOffset, isStale }) => {
        if (isStale() || !left.has(batch.partition)) return
        for (const message of batch.messages) {
          records.push(got(batch.partition, message))
          resolveOffset(message.offset)
        }
        if (Number(batch.lastOffset()) + 1 >= left.get(batch.partition)) left.delete(batch.partition)
        if (left.size > 0) return
        clearTimeout(timer)
        resolve()
      }).catch(reject)
    })
  } finally {
    consumer.disconnect().catch(() => undefined)
  }
  return records
}

class Reader {
  constructor(topic) {
    this.topic = topic
    this.waiting = []
    this.arrived = () => undefined
  }

  async open(kafka, ask) {
    this.consumer = lonely(kafka, { maxWaitTimeInMs: ask.wait_ms })
    const places = [{ partition: ask.partition, offset: ask.start }]
    await start(this.consumer, ask.topic, places, async ({ batch, isStale }) => {
      if (isStale()) return
      this.waiting.push(...batch.messages.map((message) => got(batch.partition, message)))
      this.arrived()
    })
  }

  async take(count, seconds) {
    const deadline = Date.now() + seconds * 1000
    while (this.waiting.length < count && Date.now() < deadline) {
      await new Promise((resolve) => {
        const timer = setTimeout(resolve, deadline - Date.now())
        this.arrived = () => {
          clearTimeout(timer)
          resolve()
        }
      })
    }
    return this.waiting.splice(0, count)
  }

  seek(partition, offset) {
    this.consumer.seek({ topic: this.topic, partition, offset: String(offset) })
    this.waiting = []
  }

  // Its end waits for a parked fetch; the caller does not.
  close() {
    this.consumer.disconnect().catch(() => undefined)
  }
}

module.exports = { produce, read, Reader }
