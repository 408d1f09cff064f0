"""The largest event that a check accepts is one that Kafka's client sends."""

import asyncio
import bisect

import pytest

from headrace.ingest.events.delivery import Delivery, RejectedByKafkaError
from headrace.ingest.events.json_limits import JsonLimits
from headrace.ingest.events.validation import Accepted, EventCheck
from headrace.model import Topic

LIMITS = JsonLimits(depth=64, keys=1000, string_bytes=65_536)
MOCK = {"bootstrap.servers": "", "test.mock.num.brokers": "1"}
HEADERS = [("account", b"a" * 256), ("project", b"p" * 256)]


class Keyed:
    key: str


@pytest.mark.parametrize("max_bytes", [4096, 65_536])
@pytest.mark.parametrize("key_bytes", [1, 1024])
def test_the_largest_event_is_sent(max_bytes, key_bytes):
    topic = Topic("t", event=Keyed, key="key", config={"max.message.bytes": str(max_bytes)})
    check = EventCheck(topic, LIMITS, lambda: 0.0)

    def event(pad):
        return b'{"key":"' + b"k" * key_bytes + b'","pad":"' + b"x" * pad + b'"}'

    pads = range(max_bytes)
    first_rejected = bisect.bisect_left(
        pads, 1, key=lambda pad: len(check.batch([event(pad)], "a", HEADERS).rejected)
    )
    (largest,), _ = check.batch([event(first_rejected - 1)], "a", HEADERS)
    beyond = Accepted(largest.value + b" " * 128, largest.key, "", -1)

    async def send(one):
        delivery = Delivery(MOCK, [topic])
        try:
            await delivery.send("t", [one], HEADERS, 60)
        finally:
            await delivery.close(60)

    asyncio.run(send(largest))
    with pytest.raises(RejectedByKafkaError):
        asyncio.run(send(beyond))
