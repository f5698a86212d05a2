// The client cases with @platformatic/kafka. See ../README.md.
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { Admin, Consumer, MessagesStreamFallbackModes, MessagesStreamModes, Producer } from '@platformatic/kafka'
import { main } from './shared.mjs'

class Reader {
  records = []

  constructor (bootstrap, group, settings) {
    this.consumer = new Consumer({
      clientId: 'cases',
      bootstrapBrokers: [bootstrap],
      groupId: group,
      sessionTimeout: 10_000,
      heartbeatInterval: 500,
      maxWaitTime: 200,
      ...settings
    })
  }

  async run (options) {
    this.stream = await this.consumer.consume(options)
    this.stream.on('error', error => { this.failure = error })
    this.stream.on('data', m => this.records.push({
      key: m.key,
      value: m.value,
      partition: m.partition,
      offset: Number(m.offset),
      headers: m.headerEntries,
      message: m
    }))
  }

  async commit (records) {
    for (const r of new Map(records.map(r => [r.partition, r])).values()) await r.message.commit()
  }

  async close () {
    await this.stream.close()
    await this.consumer.close()
  }
}

async function adapter (bootstrap) {
  const connection = { clientId: 'cases', bootstrapBrokers: [bootstrap] }
  const admin = new Admin(connection)
  const offsets = new Consumer({ ...connection, groupId: `offsets-${randomUUID()}` })
  const offset = async (topic, timestamp) => {
    const listed = await offsets.listOffsets({ topics: [topic], partitions: { [topic]: [0] }, timestamp: BigInt(timestamp) })
    return Number(listed.get(topic)[0])
  }

  return {
    notOffered: { static_member: 'closing it leaves the group, as a static member too' },

    create: (topic, partitions) => admin.createTopics({ topics: [topic], partitions, replicas: 1 }),
    remove: topic => admin.deleteTopics({ topics: [topic] }),
    topics: () => admin.listTopics(),
    async cluster () {
      const { id, brokers } = await admin.metadata({})
      return [id, brokers.size]
    },

    async send (topic, records, { acks = -1, codec = 'none', idempotent = false, batch = records.length } = {}) {
      const producer = new Producer({ ...connection, autocreateTopics: true, idempotent })
      const messages = records.map(r => ({
        topic,
        key: r.key ?? undefined,
        value: r.value ?? undefined,
        // Names are buffers, which a Map tells apart, so that one can be there several times.
        headers: new Map((r.headers ?? []).map(([name, value]) => [Buffer.from(name), value])),
        timestamp: r.timestamp === undefined ? undefined : BigInt(r.timestamp)
      }))
      try {
        const sends = []
        for (let i = 0; i < messages.length; i += batch) {
          sends.push(producer.send({ acks, compression: codec, messages: messages.slice(i, i + batch) }))
        }
        await Promise.all(sends)
      } finally {
        await producer.close()
      }
    },

    async reader (topic, partitions, from) {
      const reader = new Reader(bootstrap, `reader-${randomUUID()}`, { autocommit: false })
      const modes = { earliest: MessagesStreamModes.EARLIEST, latest: MessagesStreamModes.LATEST }
      const mode = modes[from] ?? MessagesStreamModes.MANUAL
      const start = Number.isInteger(from) ? [{ topic, partition: 0, offset: BigInt(from) }] : undefined
      await reader.run({ topics: [topic], mode, offsets: start })
      if (from === 'latest') await once(reader.stream, 'fetch')
      return reader
    },

    async grouped (topic, group, { member, instance }) {
      const reader = new Reader(bootstrap, group, { autocommit: member !== undefined, groupInstanceId: instance })
      if (member) {
        const mine = assignments => (assignments ?? []).filter(a => a.topic === topic).flatMap(a => a.partitions)
        reader.consumer.on('consumer:group:join', ({ assignments }) => member.given(mine(assignments)))
        reader.consumer.on('consumer:group:rebalance', () => member.taken())
      }
      const [mode, fallbackMode] = [MessagesStreamModes.COMMITTED, MessagesStreamFallbackModes.EARLIEST]
      await reader.run({ topics: [topic], mode, fallbackMode })
      return reader
    },

    bounds: async topic => [await offset(topic, -2), await offset(topic, -1)],

    async at (topic, timestamp) {
      const found = await offset(topic, timestamp)
      return found < 0 ? null : found
    },
    afterLast: () => null,

    is: (error, name) => error.findBy?.('apiId', name) != null,
    async close () {
      await offsets.close()
      await admin.close()
    }
  }
}

await main(adapter)
