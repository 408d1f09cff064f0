"""The registered queries as of now: each read continues where the one before ended."""

from __future__ import annotations

import time

from headrace.kafka.client.admin_requests import describe
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.client.offsets import earliest_offsets, high_watermarks
from headrace.kafka.read.range_reader import read_records
from headrace.kafka.table.topic_table import MAX_IDLE_SECONDS
from headrace.model import OffsetRange, TopicPartition
from headrace.queries.registry.table import ParseText, QueryTable


class FollowedRegistry:
    """The registered queries of a topic, which is read to its end by each call of :meth:`table`.

    Queries are kept for an hour after the last call, so that a call reads only later records. Used
    by one thread at a time. It is no :class:`~headrace.kafka.table.topic_table.HeldTable`, whose
    reads wait for brokers for minutes: a client waits for the answer.

    Args:
        name: name of the topic.
        parse: parses the text of a query into a tree.
    """

    def __init__(self, name: str, parse: ParseText) -> None:
        self._parse = parse
        self._partition = TopicPartition(name, 0)
        self._topic_id = ""
        self._table = QueryTable(parse)
        self._read_at = 0.0

    def table(self, config: ClientConfig) -> QueryTable:
        """Returns the queries that the topic has now; an empty table if the topic is missing.

        Args:
            config: librdkafka's settings of the cluster.

        Raises:
            AuthorizationError: if an ACL is missing.
            BrokerUnreachableError: if the brokers do not answer.
        """
        now = time.monotonic()
        name = self._partition.topic
        live = describe(config, [name]).get(name)
        topic_id = "" if live is None else live.topic_id
        if topic_id != self._topic_id or now - self._read_at > MAX_IDLE_SECONDS:
            self._table, self._topic_id = QueryTable(self._parse), topic_id
        if live is not None:
            start = earliest_offsets(config, [self._partition])[self._partition]
            end = high_watermarks(config, [self._partition])[self._partition]
            if end < self._table.next_offset:  # the log was truncated, and may have other records
                self._table = QueryTable(self._parse)
            self._table.forget_before(start)
            ranges = [OffsetRange(self._partition, max(start, self._table.next_offset), end)]
            for record in read_records(config, "headrace.queries", ranges):
                self._table.apply(record.key(), record.value(), record.offset())
        self._read_at = now
        return self._table
