// An ingest service on Rollbar's stack: Node, fastify, ajv and a Kafka client from npm.
import cluster from 'node:cluster'
import { createHash, timingSafeEqual } from 'node:crypto'
import { setTimeout } from 'node:timers/promises'
import { ProduceAcks, Producer } from '@platformatic/kafka'
import { Ajv } from 'ajv'
import addFormats from 'ajv-formats'
import fastify from 'fastify'

const { TOPIC, ACCOUNT, BOOTSTRAP, PORT, WORKERS } = process.env
const TOKEN = digest(process.env.TOKEN)
const HEADERS = new Map([['account', ACCOUNT], ['project', 'shop']])
const MAX_BYTES = 1_000_000
const MAX_EVENTS = 1000
const DEADLINE_MS = 5000
const LINGER_MS = 2
const EARLIEST = Date.UTC(2000, 0, 1)
const AHEAD_MS = 3_600_000

const string = { type: 'string' }
const ajv = new Ajv()
addFormats.default(ajv)
const isPageView = ajv.compile({
  type: 'object',
  required: [
    'event_id', 'event_time', 'visitor', 'page', 'referrer', 'user_agent', 'country', 'duration_ms'
  ],
  properties: {
    event_id: { type: 'string', minLength: 1, maxLength: 256 },
    event_time: { type: 'string', format: 'date-time' },
    visitor: { type: 'string', minLength: 1 },
    page: string,
    referrer: string,
    user_agent: string,
    country: string,
    duration_ms: { type: 'integer' }
  }
})

function digest (text) {
  return createHash('sha256').update(text).digest()
}

// Messages of requests that come within a moment are sent together, as Kafka's own client does.
class Batches {
  #producer
  #open

  constructor (producer) {
    this.#producer = producer
  }

  send (messages) {
    if (!this.#open) {
      const open = []
      this.#open = { messages: open, sent: setTimeout(LINGER_MS).then(() => this.#close(open)) }
    }
    for (const message of messages) this.#open.messages.push(message)
    return this.#open.sent
  }

  #close (messages) {
    this.#open = undefined
    return this.#producer.send({ messages, acks: ProduceAcks.ALL, compression: 'lz4' })
  }
}

function check (documents) {
  const messages = []
  const refused = []
  const seen = new Set()
  const latest = Date.now() + AHEAD_MS
  for (const [index, event] of documents.entries()) {
    if (!isPageView(event)) {
      refused.push({ index, detail: ajv.errorsText(isPageView.errors) })
      continue
    }
    const time = Date.parse(event.event_time)
    if (!(time >= EARLIEST && time <= latest) || seen.has(event.event_id)) {
      refused.push({ index, detail: 'a repeated id, or out of bounds' })
      continue
    }
    seen.add(event.event_id)
    messages.push({
      topic: TOPIC, key: event.visitor, value: JSON.stringify(event), headers: HEADERS
    })
  }
  return { messages, refused }
}

async function within (milliseconds, promise) {
  const ended = new AbortController()
  const late = setTimeout(milliseconds, undefined, { signal: ended.signal })
    .then(() => { throw new Error('Kafka did not confirm in time') }, () => {})
  return Promise.race([promise, late]).finally(() => ended.abort())
}

async function serve () {
  const text = data => (data === undefined ? data : Buffer.from(data))
  const batches = new Batches(new Producer({
    clientId: 'rival',
    bootstrapBrokers: [BOOTSTRAP],
    serializers: { key: text, value: text, headerKey: text, headerValue: text }
  }))
  const app = fastify({ bodyLimit: MAX_BYTES })
  app.post('/v1/topics/:topic/events', async (request, reply) => {
    const given = digest((request.headers.authorization ?? '').replace(/^Bearer /, ''))
    if (!timingSafeEqual(given, TOKEN)) return reply.code(401).send({ detail: 'no valid token' })
    if (request.params.topic !== TOPIC) return reply.code(404).send({ detail: 'no such topic' })
    const documents = Array.isArray(request.body) ? request.body : [request.body]
    if (documents.length > MAX_EVENTS) return reply.code(413).send({ detail: 'too many events' })
    const { messages, refused } = check(documents)
    try {
      if (messages.length) await within(DEADLINE_MS, batches.send(messages))
    } catch (error) {
      return reply.code(503).send({ detail: error.message })
    }
    return reply.code(202).send({ accepted: messages.length, refused })
  })
  await app.listen({ host: '127.0.0.1', port: Number(PORT) })
}

if (cluster.isPrimary) {
  for (let n = 0; n < Number(WORKERS); n++) cluster.fork()
} else {
  await serve()
}
