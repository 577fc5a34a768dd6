'use strict'
// kafkajs as a program: one JSON object per line in, one per line out (tests/interop/clients/process.py).

const readline = require('readline')
const { Kafka, ConfigResourceTypes, logLevel } = require('kafkajs')
const { version } = require('kafkajs/package.json')
const { ready } = require('./codecs')
const { Member } = require('./members')
const { produce, read, Reader } = require('./records')
const transactions = require('./transactions')

const MILLIS = 20000
const clients = new Map()
const readers = new Map()
const members = new Map()

const print = (line) => process.stdout.write(JSON.stringify(line) + '\n')

// Transactions are tried while the broker is away.
const connect = async (bootstrap, patient) => {
  const name = `${bootstrap} ${patient}`
  if (!clients.has(name)) {
    const kafka = new Kafka({
      brokers: [bootstrap],
      logLevel: logLevel.NOTHING,
      requestTimeout: MILLIS,
      retry: { initialRetryTime: 50, maxRetryTime: 300, retries: patient ? 60 : 4 },
    })
    const admin = kafka.admin()
    await admin.connect()
    clients.set(name, { kafka, admin })
  }
  return clients.get(name)
}

// The broker's code lies deep: retries and lists of partitions wrap it.
const codeOf = (problem) => {
  if (!problem) return undefined
  if (typeof problem.code === 'number') return problem.code
  const inner = [problem.cause, problem.originalError, ...(problem.errors ?? [])]
  inner.push(...(problem.partitions ?? []).map(({ error }) => error))
  return inner.map(codeOf).find((code) => code !== undefined)
}

const config = (name, value) => ({ name, value })
const resource = (ask) => ({ type: ConfigResourceTypes.TOPIC, name: ask.topic })

const OPS = {
  ...transactions.OPS,
  version: async () => version,
  produce: async (ask, { kafka }) => produce(kafka, ask),
  read: async (ask, { kafka, admin }) => read(kafka, admin, ask),
  'reader.open': async (ask, { kafka }) => {
    const reader = new Reader(ask.topic)
    await reader.open(kafka, ask)
    readers.set(ask.reader, reader)
  },
  'reader.take': async (ask) => readers.get(ask.reader).take(ask.count, ask.seconds),
  'reader.seek': async (ask) => readers.get(ask.reader).seek(ask.partition, ask.offset),
  'reader.close': async (ask) => readers.get(ask.reader).close(),
  'member.join': async (ask, { kafka }) => {
    const member = new Member(ask.member, print)
    members.set(ask.member, member)
    // It ends when the member has joined; that is told by an event.
    member.join(kafka, ask).catch((problem) => member.tell('failed', { text: String(problem.stack) }))
  },
  'member.seek': async (ask) => members.get(ask.member).seek(ask),
  'member.leave': async (ask) => {
    await members.get(ask.member).leave()
    members.delete(ask.member)
  },
  partitions: async (ask, { admin }) => {
    if (!(await admin.listTopics()).includes(ask.topic)) return 0
    return (await admin.fetchTopicMetadata({ topics: [ask.topic] })).topics[0].partitions.length
  },
  bounds: async (ask, { admin }) => {
    const found = (await admin.fetchTopicOffsets(ask.topic)).find(({ partition }) => partition === ask.partition)
    return [Number(found.low), Number(found.high)]
  },
  // It answers with the end where the broker said that no record is that young.
  offset_for_time: async (ask, { admin }) => {
    const mine = ({ partition }) => partition === ask.partition
    const { offset } = (await admin.fetchTopicOffsetsByTimestamp(ask.topic, ask.timestamp)).find(mine)
    const { high } = (await admin.fetchTopicOffsets(ask.topic)).find(mine)
    return offset === high ? null : Number(offset)
  },
  // It answers false where the broker said that the topic exists.
  create_topic: async (ask, { admin }) => {
    const configEntries = Object.entries(ask.configs).map(([name, value]) => config(name, value))
    const topic = { topic: ask.topic, numPartitions: ask.partitions, replicationFactor: ask.replicas, configEntries }
    if (!(await admin.createTopics({ topics: [topic], waitForLeaders: true }))) {
      throw Object.assign(new Error('the topic exists'), { code: 36 })
    }
  },
  delete_topic: async (ask, { admin }) => admin.deleteTopics({ topics: [ask.topic] }),
  add_partitions: async (ask, { admin }) =>
    admin.createPartitions({ topicPartitions: [{ topic: ask.topic, count: ask.total }] }),
  topic_configs: async (ask, { admin }) => {
    const answer = await admin.describeConfigs({ resources: [resource(ask)], includeSynonyms: false })
    const entries = answer.resources[0].configEntries
    return Object.fromEntries(entries.map(({ configName, configValue }) => [configName, configValue]))
  },
  alter_configs: async (ask, { admin }) => {
    const configEntries = Object.entries(ask.configs).map(([name, value]) => config(name, value))
    await admin.alterConfigs({ validateOnly: false, resources: [{ ...resource(ask), configEntries }] })
  },
  // As its own tests do it: a topic and the broker in one call, and the broker's settings read with all that could hold.
  alter_broker: async (ask, { admin }) => {
    const { brokers } = await admin.describeCluster()
    const broker = { type: ConfigResourceTypes.BROKER, name: String(brokers[0].nodeId) }
    const configEntries = Object.entries(ask.configs).map(([name, value]) => config(name, value))
    const topic = { ...resource(ask), configEntries: [config('cleanup.policy', 'compact')] }
    const altered = await admin.alterConfigs({ resources: [topic, { ...broker, configEntries }] })
    const found = await admin.describeConfigs({ resources: [broker], includeSynonyms: true })
    return { altered: altered.resources.length, entries: found.resources[0].configEntries }
  },
  // It looks for the leader only in what it knows already.
  delete_records: async (ask, { admin }) => {
    await OPS.bounds(ask, { admin })
    const partitions = [{ partition: ask.partition, offset: String(ask.before) }]
    await admin.deleteTopicRecords({ topic: ask.topic, partitions })
    return (await OPS.bounds(ask, { admin }))[0]
  },
  committed: async (ask, { admin }) => {
    const [{ partitions }] = await admin.fetchOffsets({ groupId: ask.group, topics: [ask.topic] })
    const { offset } = partitions.find(({ partition }) => partition === ask.partition)
    return Number(offset) < 0 ? null : Number(offset)
  },
}

const answer = async (ask) => {
  try {
    const client = ask.bootstrap === undefined ? undefined : await connect(ask.bootstrap, ask.op.startsWith('txn.'))
    return { answer: (await OPS[ask.op](ask, client)) ?? null }
  } catch (problem) {
    const code = codeOf(problem)
    if (code === undefined) return { broken: `${problem.stack} ${JSON.stringify(problem)}` }
    return { refused: [code, String(problem)] }
  }
}

const main = async () => {
  await ready
  for await (const line of readline.createInterface({ input: process.stdin })) print(await answer(JSON.parse(line)))
  process.exit(0)
}

main()
