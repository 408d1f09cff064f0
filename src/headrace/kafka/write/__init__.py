"""Writes records: sends them until the client takes them, and names what failed.

Taken: the client (librdkafka) has a buffer, and threads that send from it. While the buffer is
full, :func:`record.until_taken` handles delivery reports, which make room. It blocks, so an event
loop does not call it: :class:`polled_producer.PolledProducer` says at once that there is no room,
and its owner keeps the record (workers) or refuses the request (ingest).

Order: records of a partition arrive in the order in which they were taken, retries included. After
a failure, later records may be there already.

Retried: what passes by itself (an election, a lost connection, a quota), by the client, until
``message.timeout.ms``: three minutes, and in a transaction as long as that may last. A record is
written once, because the client is idempotent. What it reports as failed is never retried here.

Failed: a record that Kafka can never take is not there. Any other failure means *unknown*: the
record may be there. :func:`failures.failure` names the error by the meaning of Kafka's.

Transactions (:mod:`transactions`): readers of committed records get all records of a transaction,
and its positions, or none. A new producer with the same id ends what the one before left open, and
fences it. Where the answer to a commit is lost, the outcome is unknown until that happens. After a
lost connection, no transaction is started without a new producer: a request for the end of the last
one may still come.
"""
