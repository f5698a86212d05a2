// Logins over TLS with kafkajs, @platformatic/kafka and amqplib. See ../README.md.
import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { readFileSync } from 'node:fs'
import amqplib from 'amqplib'
import kafkajs from 'kafkajs'
import { Admin, Consumer, MessagesStreamModes, Producer } from '@platformatic/kafka'

const [addresses, ...wanted] = process.argv.slice(2)
const [, management, kafka, amqp, caFile, , robotFiles] = addresses.split(',')
const user = 'admin'
const password = 'admin-password'
const robot = 'robot'
const MECHANISMS = ['PLAIN', 'SCRAM-SHA-256', 'SCRAM-SHA-512']

const fresh = () => `login-${randomUUID()}`

/** TLS with who is trusted. */
const trusting = () => ({ ca: [readFileSync(caFile)] })

/** The same, with the robot's certificate to show. */
const certified = () => ({ ...trusting(), cert: readFileSync(`${robotFiles}.pem`), key: readFileSync(`${robotFiles}.key`) })

/** Sets something by the management API. */
async function manage (path, body) {
  const authorization = `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}`
  const response = await fetch(`http://${management}/api/${path}`, { method: 'PUT', headers: { authorization }, body: JSON.stringify(body) })
  assert(response.ok, `${path}: ${response.status}`)
}

/** A client of kafkajs. */
function kafkaJs (ssl, mechanism, secret = password) {
  const sasl = mechanism && { mechanism: mechanism.toLowerCase(), username: user, password: secret }
  return new kafkajs.Kafka({ brokers: [kafka], ssl, sasl, retry: { retries: 2 }, logLevel: kafkajs.logLevel.NOTHING })
}

/** A topic that the robot may write to and read from, as a member of the group of the same name. */
async function newTopic () {
  const admin = kafkaJs(trusting(), 'PLAIN').admin()
  const topic = fresh()
  await admin.connect()
  await admin.createTopics({ topics: [{ topic, numPartitions: 1, replicationFactor: 1 }] })
  const { AclOperationTypes, AclPermissionTypes, AclResourceTypes, ResourcePatternTypes } = kafkajs
  const allow = (resourceType, operation) => ({
    resourceType,
    operation,
    resourceName: topic,
    resourcePatternType: ResourcePatternTypes.LITERAL,
    principal: `User:${robot}`,
    host: '*',
    permissionType: AclPermissionTypes.ALLOW
  })
  const { TOPIC, GROUP } = AclResourceTypes
  const { READ, WRITE } = AclOperationTypes
  await admin.createAcls({ acl: [allow(TOPIC, READ), allow(TOPIC, WRITE), allow(GROUP, READ)] })
  await admin.disconnect()
  return topic
}

async function throughKafkaJs (client) {
  const topic = await newTopic()
  const producer = client.producer({ createPartitioner: kafkajs.Partitioners.DefaultPartitioner })
  await producer.connect()
  await producer.send({ topic, messages: [{ value: 'hello' }] })
  await producer.disconnect()
  const consumer = client.consumer({ groupId: topic })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  const came = await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
    consumer.run({ eachMessage: async ({ message }) => resolve(message.value.toString()) }).catch(reject)
  })
  await consumer.disconnect()
  assert.equal(came, 'hello')
}

async function kafkaJsRefused (client, says) {
  const admin = client.admin()
  await assert.rejects(() => admin.connect(), says)
  await admin.disconnect()
}

/** What a client of @platformatic/kafka is made with. */
function platformatic (tls, mechanism, secret = password) {
  const sasl = mechanism && { mechanism, username: user, password: secret }
  return { clientId: 'cases', bootstrapBrokers: [kafka], tls, sasl, retries: 0 }
}

async function throughPlatformatic (connection) {
  const topic = await newTopic()
  const producer = new Producer(connection)
  await producer.send({ acks: -1, messages: [{ topic, value: Buffer.from('hello') }] })
  await producer.close()
  const consumer = new Consumer({ ...connection, groupId: topic, maxWaitTime: 200 })
  const stream = await consumer.consume({ topics: [topic], mode: MessagesStreamModes.EARLIEST })
  for await (const message of stream) {
    assert.equal(message.value.toString(), 'hello')
    break
  }
  await stream.close()
  await consumer.close(true)
}

async function platformaticRefused (connection, says) {
  const admin = new Admin(connection)
  await assert.rejects(() => admin.metadata({}), error => {
    const all = function * (of) {
      yield String(of)
      for (const next of [of.cause, ...(of.errors ?? [])]) if (next) yield * all(next)
    }
    const texts = [...all(error)].join('\n')
    assert.match(texts, says)
    return true
  })
  await admin.close()
}

const dial = (tls, options) => amqplib.connect(`amqps://${user}:${password}@${amqp}/`, { ...tls, ...options })

async function throughAmqplib (tls, options) {
  const connection = await dial(tls, options)
  const channel = await connection.createConfirmChannel()
  const { queue } = await channel.assertQueue('', { exclusive: true })
  const body = Buffer.alloc(1_000_000, 'x')
  channel.sendToQueue(queue, body)
  await channel.waitForConfirms()
  const got = await channel.get(queue, { noAck: true })
  await connection.close()
  assert(got.content.equals(body), `${got.content.length} bytes came`)
}

const { credentials } = amqplib
const REFUSED = /ACCESS_REFUSED|403|Handshake terminated by server/
const UNTRUSTED = /self-signed certificate|unable to verify/

const cases = {
  async kafkajs () {
    for (const mechanism of MECHANISMS) await throughKafkaJs(kafkaJs(trusting(), mechanism))
  },

  async kafkajs_wrong_password () {
    for (const mechanism of MECHANISMS) {
      await kafkaJsRefused(kafkaJs(trusting(), mechanism, 'wrong'), error => error.name === 'KafkaJSSASLAuthenticationError')
    }
  },

  /** It says who it is by its certificate alone. */
  async kafkajs_certificate () {
    await throughKafkaJs(kafkaJs(certified()))
  },

  async kafkajs_untrusted () {
    await kafkaJsRefused(kafkaJs({}, 'PLAIN'), UNTRUSTED)
  },

  async platformatic () {
    for (const mechanism of MECHANISMS) await throughPlatformatic(platformatic(trusting(), mechanism))
  },

  async platformatic_wrong_password () {
    for (const mechanism of MECHANISMS) await platformaticRefused(platformatic(trusting(), mechanism, 'wrong'), /SASL|[Aa]uthentication/)
  },

  async platformatic_certificate () {
    await throughPlatformatic(platformatic(certified()))
  },

  async platformatic_untrusted () {
    await platformaticRefused(platformatic({}, 'PLAIN'), UNTRUSTED)
  },

  async amqplib () {
    await throughAmqplib(trusting())
    await throughAmqplib(trusting(), { credentials: credentials.amqplain(user, password) })
  },

  async amqplib_wrong_password () {
    for (const wrong of [credentials.plain, credentials.amqplain]) {
      await assert.rejects(() => dial(trusting(), { credentials: wrong(user, 'wrong') }), REFUSED)
    }
  },

  /** It says who it is by its certificate; who shows none cannot. */
  async amqplib_certificate () {
    await manage(`users/${robot}`, { password_hash: '', tags: '' })
    await manage(`permissions/%2F/${robot}`, { configure: '.*', write: '.*', read: '.*' })
    await throughAmqplib(certified(), { credentials: credentials.external() })
    await assert.rejects(() => dial(trusting(), { credentials: credentials.external() }), REFUSED)
  },

  async amqplib_untrusted () {
    await assert.rejects(() => dial({}), UNTRUSTED)
  }
}

for (const name of wanted.length > 0 ? wanted : Object.keys(cases)) {
  try {
    await cases[name]()
    console.log(`ok ${name}`)
  } catch (error) {
    process.exitCode = 1
    console.error(error)
    console.log(`FAIL ${name}: ${error}`)
  }
}
// A client of a failed case may be left.
process.exit()
