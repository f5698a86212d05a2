// The client cases with kafkajs. See ../README.md.
import { randomUUID } from 'node:crypto'
import { zstdCompressSync, zstdDecompressSync } from 'node:zlib'
import kafkajs from 'kafkajs'
import snappy from 'kafkajs-snappy'
import { main } from './shared.mjs'

const { CompressionCodecs, CompressionTypes, Kafka, logLevel } = kafkajs
const types = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD
}

// kafkajs has gzip and takes the others from outside.
const codec = (compress, decompress) => () => ({
  compress: async encoder => Buffer.from(compress(encoder.buffer)),
  decompress: async bytes => Buffer.from(decompress(bytes))
})
CompressionCodecs[CompressionTypes.Snappy] = snappy
CompressionCodecs[CompressionTypes.ZSTD] = codec(zstdCompressSync, zstdDecompressSync)

/** An object with an array for what is there several times, as kafkajs wants them. */
function headersOf (entries) {
  const headers = {}
  for (const [name, value] of entries) (headers[name] ??= []).push(value)
  return headers
}

function entriesOf (headers) {
  const entries = Object.entries(headers).flatMap(([name, value]) => [value].flat().map(v => [name, v]))
  return entries.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0))
}

class Reader {
  records = []

  constructor (kafka, group) {
    this.consumer = kafka.consumer({
      groupId: group,
      sessionTimeout: 10_000,
      heartbeatInterval: 500,
      maxWaitTimeInMs: 200,
      maxBytesPerPartition: 4_194_304
    })
    this.consumer.on(this.consumer.events.CRASH, ({ payload }) => {
      if (!payload.restart) this.failure = payload.error
    })
  }

  async run (topic, fromBeginning, autoCommit) {
    await this.consumer.connect()
    await this.consumer.subscribe({ topic, fromBeginning })
    await this.consumer.run({
      autoCommit,
      eachMessage: async ({ partition, message }) => {
        const { key, value, offset } = message
        this.records.push({ key, value, partition, offset: Number(offset), headers: entriesOf(message.headers) })
      }
    })
  }

  async commit (records) {
    const next = new Map()
    for (const r of records) next.set(r.partition, r.offset + 1)
    await this.consumer.commitOffsets([...next].map(([partition, offset]) => ({ topic: this.topic, partition, offset: `${offset}` })))
  }

  close () {
    return this.consumer.disconnect()
  }
}

async function adapter (bootstrap) {
  const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.NOTHING })
  const admin = kafka.admin()
  await admin.connect()

  return {
    notOffered: {
      'codecs/lz4': 'it has no lz4, and the packages for it write linked blocks, which Kafka refuses too',
      'headers/null': 'its producer cannot encode a header without a value',
      'headers/order': 'it keeps headers in an object by name, so the order between names is lost',
      'idempotent/pipelined': 'calls under way at the same time pass each other in the client, so each is awaited',
      static_member: 'it never sends a group instance id'
    },

    create: (topic, partitions) => admin.createTopics({ topics: [{ topic, numPartitions: partitions, replicationFactor: 1 }] }),
    remove: topic => admin.deleteTopics({ topics: [topic] }),
    topics: () => admin.listTopics(),
    async cluster () {
      const { clusterId, brokers } = await admin.describeCluster()
      return [clusterId, brokers.length]
    },

    async send (topic, records, { acks = -1, codec = 'none', idempotent = false, batch = records.length } = {}) {
      const producer = kafka.producer({ idempotent, maxInFlightRequests: 5, createPartitioner: kafkajs.Partitioners.DefaultPartitioner })
      await producer.connect()
      const messages = records.map(r => ({
        key: r.key,
        value: r.value,
        headers: headersOf(r.headers ?? []),
        timestamp: r.timestamp === undefined ? undefined : String(r.timestamp)
      }))
      try {
        for (let i = 0; i < messages.length; i += batch) {
          await producer.send({ topic, acks, compression: types[codec], messages: messages.slice(i, i + batch) })
        }
      } finally {
        await producer.disconnect()
      }
    },

    async reader (topic, partitions, from) {
      const reader = new Reader(kafka, `reader-${randomUUID()}`)
      const fetched = new Promise(resolve => reader.consumer.on(reader.consumer.events.FETCH, resolve))
      await reader.run(topic, from !== 'latest', false)
      if (from === 'latest') await fetched
      if (Number.isInteger(from)) {
        reader.consumer.seek({ topic, partition: 0, offset: String(from) })
        reader.records.length = 0
      }
      return reader
    },

    async grouped (topic, group, { member }) {
      const reader = new Reader(kafka, group)
      reader.topic = topic
      if (member) {
        reader.consumer.on(reader.consumer.events.GROUP_JOIN, ({ payload }) => member.given(payload.memberAssignment[topic] ?? []))
        reader.consumer.on(reader.consumer.events.REBALANCING, () => member.taken())
      }
      await reader.run(topic, true, member !== undefined)
      return reader
    },

    async bounds (topic) {
      const [{ low, high }] = await admin.fetchTopicOffsets(topic)
      return [Number(low), Number(high)]
    },

    async at (topic, timestamp) {
      const [{ offset }] = await admin.fetchTopicOffsetsByTimestamp(topic, timestamp)
      return Number(offset)
    },
    /** Where no message is that late, it gives the end. */
    afterLast: end => end,

    is: (error, name) => [error, error.cause, ...(error.errors ?? [])].some(e => e?.type === name),
    close: () => admin.disconnect()
  }
}

await main(adapter)
