// The AMQP cases with amqplib. See ../README.md.
import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { setTimeout as pause } from 'node:timers/promises'
import amqplib from 'amqplib'

const WAIT_MS = 60_000
/** How long nothing must come to be called nothing. */
const QUIET_MS = 300
const REPLY_TO = 'amq.rabbitmq.reply-to'

const [address, ...wanted] = process.argv.slice(2)
const url = `amqp://guest:guest@${address}/`
const fresh = prefix => `${prefix}-${randomUUID()}`
const numbers = (from, to) => Array.from({ length: to - from }, (_, i) => String(from + i))

/** What a case opened, closed behind it. */
const opened = []

async function connect (options) {
  const connection = await amqplib.connect(url, options)
  // A refusal on the connection also rejects what was asked for.
  connection.on('error', () => {})
  opened.push(connection)
  return connection
}

async function channelOf (connection, confirms = false) {
  const channel = await (confirms ? connection.createConfirmChannel() : connection.createChannel())
  channel.on('error', () => {})
  return channel
}

async function newChannel (confirms) {
  return channelOf(await connect(), confirms)
}

/** Deliveries in order; `null` says that the consumer was cancelled by the broker. */
class Consumer {
  deliveries = []

  static async start (channel, queue, options = {}) {
    const consumer = new Consumer()
    consumer.channel = channel
    const { consumerTag } = await channel.consume(queue, delivery => consumer.deliveries.push(delivery), options)
    consumer.tag = consumerTag
    return consumer
  }

  async next () {
    await until('a message comes', () => this.deliveries.length > 0)
    return this.deliveries.shift()
  }

  async quiet () {
    await pause(QUIET_MS)
    assert.deepEqual(this.deliveries, [], 'something came')
  }

  /** Bodies of so many deliveries, acknowledged, and which of them were redelivered. */
  async take (count) {
    const got = []
    while (got.length < count) {
      const delivery = await this.next()
      this.channel.ack(delivery)
      got.push(delivery)
    }
    return [got.map(body), got.map(d => d.fields.redelivered)]
  }
}

const body = delivery => delivery.content.toString()

async function until (what, holds) {
  const end = Date.now() + WAIT_MS
  while (!await holds()) {
    assert(Date.now() < end, `never happened: ${what}`)
    await pause(10)
  }
}

async function ready (channel, queue) {
  return (await channel.checkQueue(queue)).messageCount
}

function send (channel, queue, ...bodies) {
  for (const text of bodies) channel.sendToQueue(queue, Buffer.from(text), { persistent: true })
}

async function refused (act, code, text) {
  await assert.rejects(act, error => error.code === code && error.message.includes(text), `not refused with ${code} ${text}`)
}

/** Fails as the channel does, for what has no answer. */
function failure (channel, act) {
  return new Promise((resolve, reject) => {
    channel.once('error', reject)
    act()
  })
}

const cases = {
  async smoke () {
    const channel = await newChannel(true)
    const queue = fresh('smoke')
    await channel.assertQueue(queue)
    const sent = numbers(0, 100)
    for (const n of sent) {
      channel.sendToQueue(queue, Buffer.from(n), { persistent: true, mandatory: true, contentType: 'text/plain', headers: { n: Number(n) } })
    }
    await channel.waitForConfirms()
    assert.equal(await ready(channel, queue), sent.length)
    const consumer = await Consumer.start(channel, queue)
    for (const n of sent) {
      const delivery = await consumer.next()
      const { properties, fields } = delivery
      assert.deepEqual([body(delivery), properties.headers.n, properties.contentType, fields.redelivered], [n, Number(n), 'text/plain', false])
      channel.ack(delivery)
    }
    await channel.deleteQueue(queue)
    await refused(ready(channel, queue), 404, `NOT_FOUND - no queue '${queue}' in vhost '/'`)
  },

  async confirms () {
    const channel = await newChannel(true)
    const [queue, full] = [fresh('confirms'), fresh('full')]
    await channel.assertQueue(queue)
    let confirmed = 0
    for (const n of numbers(0, 1000)) channel.sendToQueue(queue, Buffer.from(n), { persistent: true }, error => { confirmed += error ? 0 : 1 })
    await channel.waitForConfirms()
    assert.equal(confirmed, 1000)
    assert.equal(await ready(channel, queue), 1000)
    await channel.assertQueue(full, { maxLength: 1, overflow: 'reject-publish' })
    const put = text => new Promise(resolve => channel.sendToQueue(full, Buffer.from(text), {}, error => resolve(error === null)))
    assert.deepEqual([await put('room'), await put('no room')], [true, false])
    for (const name of [queue, full]) await channel.deleteQueue(name)
  },

  async work_queue () {
    const publisher = await newChannel()
    const worker = await newChannel()
    const queue = fresh('work')
    await publisher.assertQueue(queue)
    send(publisher, queue, ...numbers(0, 10))
    await worker.prefetch(3)
    const consumer = await Consumer.start(worker, queue)
    const held = [await consumer.next(), await consumer.next(), await consumer.next()]
    await consumer.quiet()
    worker.ack(held[1], true)
    assert.deepEqual([body(await consumer.next()), body(await consumer.next())], ['3', '4'])
    await consumer.quiet()
    worker.nack(held[2], false, true)
    const back = await consumer.next()
    assert.deepEqual([body(back), back.fields.redelivered], ['2', true])
    await worker.close()
    const other = await newChannel()
    const [bodies, again] = await (await Consumer.start(other, queue)).take(8)
    assert.deepEqual(bodies, numbers(2, 10))
    assert.deepEqual(again, [true, true, true, false, false, false, false, false])
    await other.deleteQueue(queue)
  },

  async routing () {
    const channel = await newChannel(true)
    const exchanges = {}
    for (const kind of ['topic', 'fanout', 'headers']) {
      exchanges[kind] = fresh(kind)
      await channel.assertExchange(exchanges[kind], kind)
    }
    const queues = {}
    for (const key of ['a.*.c', 'a.#', 'x']) {
      queues[key] = (await channel.assertQueue('', { exclusive: true })).queue
      await channel.bindQueue(queues[key], exchanges.topic, key)
    }
    await channel.bindExchange(exchanges.topic, exchanges.fanout)
    await channel.bindQueue(queues.x, exchanges.headers, '', { 'x-match': 'all', n: 1 })
    const publish = (exchange, key, headers) => channel.publish(exchange, key, Buffer.from(key), { headers })
    for (const key of ['a.b.c', 'a.b.d', 'a', 'y']) publish(exchanges.topic, key)
    publish(exchanges.fanout, 'a.b.c')
    publish(exchanges.headers, '', { n: 1, more: true })
    publish(exchanges.headers, '', { n: 2 })
    await channel.waitForConfirms()
    const counts = await Promise.all(Object.values(queues).map(queue => ready(channel, queue)))
    assert.deepEqual(counts, [2, 4, 1])
    for (const exchange of Object.values(exchanges)) await channel.deleteExchange(exchange)
  },

  async returns () {
    const channel = await newChannel(true)
    const order = []
    channel.on('return', message => order.push(message))
    const confirmed = new Promise((resolve, reject) =>
      channel.publish('amq.direct', 'nowhere', Buffer.from('back'), { mandatory: true, messageId: '1' }, error => {
        order.push('confirmed')
        error ? reject(error) : resolve()
      }))
    await confirmed
    const [{ fields, properties, content }, last] = order
    assert.deepEqual([fields.replyCode, fields.replyText, properties.messageId, content.toString()], [312, 'NO_ROUTE', '1', 'back'])
    assert.equal(last, 'confirmed', 'it comes back before it is confirmed')
    await refused(failure(channel, () => channel.publish(fresh('no'), '', Buffer.of())), 404, "NOT_FOUND - no exchange 'no-")
  },

  /** A message that no consumer can handle waits in a queue of its own and comes back. */
  async retry () {
    const channel = await newChannel()
    const [work, later] = [fresh('work'), fresh('later')]
    await channel.assertQueue(work, { deadLetterExchange: '', deadLetterRoutingKey: later })
    await channel.assertQueue(later, { deadLetterExchange: '', deadLetterRoutingKey: work, messageTtl: 50 })
    send(channel, work, 'again')
    const consumer = await Consumer.start(channel, work)
    for (let tries = 0; tries <= 3; tries++) {
      const delivery = await consumer.next()
      assert.equal(body(delivery), 'again')
      const deaths = (delivery.properties.headers['x-death'] ?? []).map(({ queue, reason, count }) => [queue, reason, count])
      assert.deepEqual(deaths, tries === 0 ? [] : [[later, 'expired', tries], [work, 'rejected', tries]])
      if (tries < 3) channel.reject(delivery, false)
      else channel.ack(delivery)
    }
    for (const queue of [work, later]) await channel.deleteQueue(queue)
  },

  async cancelled () {
    const channel = await newChannel()
    const queue = fresh('cancelled')
    await channel.assertQueue(queue)
    const consumer = await Consumer.start(channel, queue)
    await (await newChannel()).deleteQueue(queue)
    assert.equal(await consumer.next(), null, 'a message came')
    await channel.assertQueue(queue)
    await channel.deleteQueue(queue)
  },

  async large () {
    const channel = await newChannel(true)
    const queue = fresh('large')
    await channel.assertQueue(queue)
    const content = Buffer.from('0123456789abcdefghijk'.repeat(300_000))
    for (let i = 0; i < 2; i++) channel.sendToQueue(queue, content)
    await channel.waitForConfirms()
    const consumer = await Consumer.start(channel, queue, { noAck: true })
    for (let i = 0; i < 2; i++) assert((await consumer.next()).content.equals(content), 'another body came')
    await channel.deleteQueue(queue)
  },

  async get () {
    const channel = await newChannel(true)
    const queue = fresh('get')
    await channel.assertQueue(queue, { durable: false })
    assert.equal(await channel.get(queue), false)
    send(channel, queue, 'first', 'second')
    await channel.waitForConfirms()
    for (const again of [false, true]) {
      const message = await channel.get(queue)
      assert.deepEqual([body(message), message.fields.redelivered, message.fields.messageCount], ['first', again, 1])
      channel.nack(message, false, !again)
    }
    const message = await channel.get(queue, { noAck: true })
    assert.deepEqual([body(message), message.fields.messageCount], ['second', 0])
    send(channel, queue, ...numbers(0, 5))
    await channel.waitForConfirms()
    assert.equal((await channel.purgeQueue(queue)).messageCount, 5)
    await channel.deleteQueue(queue)
  },

  async exclusive () {
    const owner = await connect()
    const { queue } = await (await channelOf(owner)).assertQueue('', { exclusive: true })
    const other = await connect()
    const locked = `RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '${queue}'`
    for (const act of [ch => ch.checkQueue(queue), ch => ch.consume(queue, () => {}), ch => ch.deleteQueue(queue)]) {
      await refused(act(await channelOf(other)), 405, locked)
    }
    await owner.close()
    await refused((await channelOf(other)).checkQueue(queue), 404, `no queue '${queue}'`)
  },

  /** The socket is cut, and the client's recovery sets all up again. */
  async reconnect () {
    const [durable, own] = [fresh('durable'), fresh('own')]
    let set
    const setup = async model => {
      const channel = await channelOf(model)
      await channel.assertQueue(durable)
      await channel.assertQueue(own, { exclusive: true })
      await channel.bindQueue(own, 'amq.direct', own)
      const consumers = await Promise.all([durable, own].map(queue => Consumer.start(channel, queue)))
      set = { channel, consumers, socket: model.connection.stream }
    }
    await connect({ recovery: { initialDelay: 50, maxDelay: 50, setup } })
    const before = set
    send(before.channel, durable, 'held')
    assert.equal(body(await before.consumers[0].next()), 'held')
    before.socket.destroy(new Error('the case cuts it'))
    await until('all is set up again', () => set !== before)
    const delivery = await set.consumers[0].next()
    assert.deepEqual([body(delivery), delivery.fields.redelivered], ['held', true])
    set.channel.ack(delivery)
    const other = await newChannel()
    other.publish('amq.direct', own, Buffer.from('bound'))
    assert.equal(body(await set.consumers[1].next()), 'bound')
    await other.deleteQueue(durable)
  },

  /** Calls with answers that go past all queues. */
  async rpc () {
    const [server, client] = [await newChannel(), await newChannel()]
    const { queue } = await server.assertQueue(fresh('rpc'), { durable: false })
    await server.consume(queue, call => {
      const { replyTo, correlationId } = call.properties
      server.sendToQueue(replyTo, Buffer.from(body(call).toUpperCase()), { correlationId })
    }, { noAck: true })
    const answers = await Consumer.start(client, REPLY_TO, { noAck: true })
    for (const id of numbers(0, 50)) client.sendToQueue(queue, Buffer.from(`call ${id}`), { replyTo: REPLY_TO, correlationId: id })
    for (const id of numbers(0, 50)) {
      const answer = await answers.next()
      assert.deepEqual([answer.properties.correlationId, body(answer)], [id, `CALL ${id}`])
    }
    const other = await newChannel()
    const call = () => other.sendToQueue(queue, Buffer.of(), { replyTo: REPLY_TO })
    await refused(failure(other, call), 406, 'fast reply consumer does not exist')
    await server.deleteQueue(queue)
  }
}

async function one (name) {
  try {
    await cases[name]()
    console.log(`ok ${name}`)
  } catch (error) {
    process.exitCode = 1
    console.error(error)
    console.log(`FAIL ${name}: ${error}`)
  }
  for (const connection of opened.splice(0)) await connection.close().catch(() => {})
}

if (address === '--list') {
  console.log(Object.keys(cases).join('\n'))
} else {
  for (const name of wanted.length > 0 ? wanted : Object.keys(cases)) await one(name)
  // A socket of a failed case may be left.
  process.exit()
}
