// The client cases over an adapter of a client library; kafkajs and @platformatic/kafka have one each. See ../README.md.
//
// An adapter is an object with notOffered (see ../README.md), and
//   create(topic, partitions)   remove(topic)   topics() -> names   cluster() -> [cluster id, number of brokers]
//   send(topic, records, settings)       settings: acks, codec, idempotent, batch (messages to a call; calls go side by side where offered)
//   reader(topic, partitions, from)      from 'earliest', 'latest' or an offset of partition 0; without a group to speak of
//   grouped(topic, group, {member, instance})   calls member.given(partitions) and member.taken(); commits automatically
//   bounds(topic) -> [first, next]       at(topic, timestamp) -> offset or null, both of partition 0
//   is(error, name)                      whether the error is the one that Kafka calls so
//   close()
// A record is {key, value, headers, timestamp} on the way in, headers an array of [name, value]; and partition and offset on
// the way out. A reader has records (an array that grows), commit(records) and close().
import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { setTimeout as pause } from 'node:timers/promises'

const WAIT_MS = 60_000
/** How long nothing must come to be called nothing. */
const QUIET_MS = 1000

export const codecs = ['none', 'gzip', 'snappy', 'lz4', 'zstd']

const fresh = prefix => `${prefix}-${randomUUID()}`

async function newTopic (client, partitions = 1) {
  const name = fresh('node')
  await client.create(name, partitions)
  return name
}

async function until (what, holds) {
  const end = Date.now() + WAIT_MS
  while (!holds()) {
    assert(Date.now() < end, `never happened: ${what}`)
    await pause(20)
  }
}

async function take (reader, count) {
  await until(`${count} messages come`, () => reader.failure || reader.records.length >= count)
  if (reader.failure) throw reader.failure
  return reader.records.splice(0, count)
}

async function read (client, topic, count, partitions = 1) {
  const reader = await client.reader(topic, partitions, 'earliest')
  try {
    return await take(reader, count)
  } finally {
    await reader.close()
  }
}

const numbered = (count, tail = '') =>
  Array.from({ length: count }, (_, i) => ({ key: Buffer.from(`k${i}`), value: Buffer.from(`v${i}${tail}`) }))

const text = bytes => bytes?.toString() ?? null
const pairs = records => records.map(r => [text(r.key), text(r.value)])
const values = records => records.map(r => text(r.value))

async function throughAndBack (client, sent, settings) {
  const topic = await newTopic(client)
  await client.send(topic, sent, settings)
  const got = await read(client, topic, sent.length)
  assert.deepEqual(pairs(got), pairs(sent))
  assert.deepEqual(got.map(r => r.offset), sent.map((_, i) => i))
  return topic
}

async function refused (client, name, action) {
  const outcome = await action().then(() => 'taken', error => (client.is(error, name) ? 'refused' : error))
  if (outcome instanceof Error) throw outcome
  assert.equal(outcome, 'refused')
}

const cases = {
  async smoke (client) {
    const topic = await throughAndBack(client, numbered(100))
    await client.remove(topic)
    assert(!(await client.topics()).includes(topic), 'the topic is still listed')
  },

  async produce_acks (client) {
    for (const acks of [0, 1, -1]) await throughAndBack(client, numbered(50), { acks })
  },

  async codecs (client) {
    for (const codec of codecs) {
      if (`codecs/${codec}` in client.notOffered) continue
      await throughAndBack(client, numbered(500, '.'.repeat(200)), { codec })
    }
  },

  async headers (client) {
    const topic = await newTopic(client)
    let sent = [['a', '1'], ['a', '2'], ['empty', ''], ['null', null], ['a', '3']]
    if ('headers/null' in client.notOffered) sent = sent.filter(([, value]) => value !== null)
    const headers = sent.map(([name, value]) => [name, value === null ? null : Buffer.from(value)])
    await client.send(topic, [{ key: null, value: Buffer.from('v'), headers }])
    const got = (await read(client, topic, 1))[0].headers.map(([name, value]) => [text(name), text(value)])
    const byName = ([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)
    if ('headers/order' in client.notOffered) sent.sort(byName)
    assert.deepEqual(got, sent)
  },

  async tombstones (client) {
    const topic = await newTopic(client)
    const sent = [{ key: Buffer.from('k'), value: null }, { key: null, value: Buffer.from('v') },
      { key: Buffer.alloc(0), value: Buffer.alloc(0) }]
    await client.send(topic, sent)
    assert.deepEqual(pairs(await read(client, topic, sent.length)), pairs(sent))
  },

  async large (client) {
    const topic = await newTopic(client)
    const value = Buffer.from(Array.from({ length: 1_000_000 }, (_, i) => (i * 31) % 251))
    await client.send(topic, [{ key: null, value }])
    assert((await read(client, topic, 1))[0].value.equals(value), 'the large message changed')
    const larger = [{ key: null, value: Buffer.alloc(2_000_000) }]
    await refused(client, 'MESSAGE_TOO_LARGE', () => client.send(topic, larger))
  },

  async idempotent (client) {
    const topic = await newTopic(client, 3)
    const sent = numbered(5000)
    await client.send(topic, sent, { idempotent: true, batch: 50 })
    const got = await read(client, topic, sent.length, 3)
    assert.deepEqual(values(got).sort(), values(sent).sort())
    for (let p = 0; p < 3; p++) {
      const order = values(got.filter(r => r.partition === p)).map(v => Number(v.slice(1)))
      assert.deepEqual(order, order.toSorted((a, b) => a - b), `partition ${p} is out of order`)
    }
  },

  async seek (client) {
    const topic = await newTopic(client)
    await client.send(topic, numbered(100))
    for (const offset of [0, 37, 99]) {
      const reader = await client.reader(topic, 1, offset)
      assert.equal((await take(reader, 1))[0].offset, offset)
      await reader.close()
    }
    const end = await client.reader(topic, 1, 'latest')
    await pause(QUIET_MS)
    assert.equal(end.records.length, 0, 'messages after the end')
    await client.send(topic, [{ key: null, value: Buffer.from('last') }])
    assert.deepEqual(values(await take(end, 1)), ['last'])
    await end.close()
    assert.deepEqual(await client.bounds(topic), [0, 101])
  },

  async by_time (client) {
    const topic = await newTopic(client)
    const start = Date.now() - 100_000
    const sent = numbered(100).map((r, i) => ({ ...r, timestamp: start + i * 10 }))
    await client.send(topic, sent, { codec: 'gzip' })
    const wanted = [[0, 0], [500, 50], [501, 51], [-1000, 0], [990, 99], [1_000_000, client.afterLast(100)]]
    for (const [after, offset] of wanted) assert.equal(await client.at(topic, start + after), offset, `${after} ms`)
  },

  async group (client) {
    const [topic, group] = [await newTopic(client, 2), fresh('g')]
    await client.send(topic, numbered(100))
    const all = []
    for (const count of [60, 40]) {
      const reader = await client.grouped(topic, group, {})
      const got = await take(reader, count)
      await reader.commit(got)
      await reader.close()
      all.push(...values(got))
    }
    assert.deepEqual(all.sort(), values(numbered(100)).sort())
  },

  async rebalance (client) {
    const [topic, group] = [await newTopic(client, 6), fresh('g')]
    const a = await Member.start(client, topic, group)
    await until('the first member has all partitions', () => shared(6, a))
    await client.send(topic, numbered(300))
    const b = await Member.start(client, topic, group)
    await until('two members share the partitions', () => shared(6, a, b))
    const c = await Member.start(client, topic, group)
    await until('three members share the partitions', () => shared(6, a, b, c))
    await client.send(topic, numbered(300, 'b'))
    await a.stop()
    await until('the two that stay share the partitions', () => shared(6, b, c))
    await until('everything is consumed', () => new Set([a, b, c].flatMap(m => values(m.reader.records))).size === 600)
    await b.stop()
    await c.stop()
  },

  async static_member (client) {
    const [topic, group] = [await newTopic(client, 4), fresh('g')]
    const a = await Member.start(client, topic, group, 'a')
    const b = await Member.start(client, topic, group, 'b')
    await until('both have partitions', () => shared(4, a, b))
    const [before, events] = [b.assigned, a.events]
    await b.stop()
    const again = await Member.start(client, topic, group, 'b')
    await until('the member is back', () => String(again.assigned) === String(before))
    assert.equal(a.events, events, 'the other member saw a rebalance')
    await a.stop()
    await again.stop()
  },

  async many_partitions (client) {
    const topic = await newTopic(client, 100)
    const sent = Array.from({ length: 5000 }, (_, i) => ({ key: Buffer.from(`k${i % 250}`), value: Buffer.from(`${i}`) }))
    await client.send(topic, sent)
    const last = new Map()
    for (const r of await read(client, topic, sent.length, 100)) {
      assert((last.get(text(r.key)) ?? -1) < Number(r.value), 'a key is out of order')
      last.set(text(r.key), Number(r.value))
    }
    assert.equal(last.size, 250)
  },

  async metadata (client) {
    const topic = fresh('node-auto')
    await client.send(topic, [{ key: null, value: Buffer.from('created by being produced to') }])
    await read(client, topic, 1)
    assert((await client.topics()).includes(topic))
    const [id, brokers] = await client.cluster()
    assert(id && brokers === 1, `${id} ${brokers}`)
    await refused(client, 'INVALID_TOPIC_EXCEPTION', () => client.create('not a legal name!', 1))
  }
}

/** A group member that consumes until it is stopped, and notes what it was given. */
class Member {
  assigned = []
  events = 0

  static async start (client, topic, group, instance) {
    const member = new Member()
    member.reader = await client.grouped(topic, group, { member, instance })
    return member
  }

  given (partitions) {
    this.assigned = partitions.toSorted((a, b) => a - b)
    this.events++
  }

  taken () {
    this.assigned = []
  }

  stop () {
    return this.reader.close()
  }
}

function shared (partitions, ...members) {
  const failed = members.find(m => m.reader.failure)
  if (failed) throw failed.reader.failure
  const all = members.flatMap(m => m.assigned)
  return members.every(m => m.assigned.length > 0) && all.length === partitions && new Set(all).size === partitions
}

export async function main (adapter) {
  const [bootstrap, ...names] = process.argv.slice(2)
  if (bootstrap === '--list') return console.log(Object.keys(cases).join('\n'))
  const client = await adapter(bootstrap)
  for (const [what, why] of Object.entries(client.notOffered)) console.log(`not offered ${what}: ${why}`)
  const wanted = names.length > 0 ? names : Object.keys(cases).filter(name => !(name in client.notOffered))
  for (const name of wanted) {
    try {
      await cases[name](client)
      console.log(`ok ${name}`)
    } catch (error) {
      process.exitCode = 1
      console.error(error)
      console.log(`FAIL ${name}: ${error}`)
    }
  }
  await client.close()
  // A member of a failed case may be left.
  process.exit()
}
