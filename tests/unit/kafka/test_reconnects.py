"""How often a client knocks at brokers that are down."""

import json
import socket
import struct
import threading
from contextlib import suppress

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.mock_brokers import MockBrokers
from tests.waiting import LIMIT_SECONDS, wait_for

from headrace.errors import BrokerUnreachableError
from headrace.kafka.client import admin_requests, offsets
from headrace.kafka.client.clients import non_producer_settings
from headrace.kafka.client.offsets import committed
from headrace.model import TopicPartition
from headrace.runtime.servers.ports import free_ports

ALIVE, DOWN = 1, 2
METADATA, API_VERSIONS, CREATE_TOPICS = 3, 18, 19
HOST = struct.pack(">h", 9) + b"127.0.0.1"


class AliveBroker(threading.Thread):
    """Broker 1 of two, as far as an admin client asks it. Broker 2, the controller, is down.

    librdkafka's mock brokers do not tell of a controller that is down.
    """

    def __init__(self):
        super().__init__(daemon=True)
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        [self.down_port] = free_ports(1)

    def run(self):
        with suppress(OSError):  # its end
            while True:
                connection, _ = self.server.accept()
                threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        # A client that is closed can reset its connections.
        with suppress(ConnectionError), connection, connection.makefile("rwb") as stream:
            while size := stream.read(4):
                request = stream.read(*struct.unpack(">i", size))
                kind, version, correlation = struct.unpack(">hhi", request[:8])
                answer = struct.pack(">i", correlation) + self.answer(kind, version)
                stream.write(struct.pack(">i", len(answer)) + answer)
                stream.flush()

    def answer(self, kind, version):
        if kind == API_VERSIONS:
            known = [(METADATA, 0, 1), (API_VERSIONS, 0, 0), (CREATE_TOPICS, 0, 2)]
            error = 35 if version else 0  # unsupported, take version 0
            apis = b"".join(struct.pack(">hhh", *api) for api in known)
            return struct.pack(">hi", error, len(known)) + apis
        assert kind == METADATA
        ports = {ALIVE: self.port, DOWN: self.down_port}
        brokers = b"".join(
            struct.pack(">i", node) + HOST + struct.pack(">ih", port, -1)
            for node, port in ports.items()
        )
        return struct.pack(">i", len(ports)) + brokers + struct.pack(">ii", DOWN, 0)


@pytest.fixture
def bootstrap():
    broker = AliveBroker()
    broker.start()
    yield f"127.0.0.1:{broker.port}"
    broker.server.shutdown(socket.SHUT_RDWR)  # which ends a waiting accept(), as close() does not
    broker.server.close()
    broker.join(LIMIT_SECONDS)


def test_a_request_that_waits_for_a_broker_that_is_down_does_not_connect_without_end(bootstrap):
    connects = {}

    def on_stats(text):
        for broker in json.loads(text)["brokers"].values():
            connects[broker["nodeid"]] = broker["connects"]

    settings = non_producer_settings(
        {"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"}
    )
    statistics = {"statistics.interval.ms": 200, "stats_cb": on_stats, "log_level": 0}
    admin = AdminClient(settings | statistics)
    assert set(admin.list_topics(timeout=LIMIT_SECONDS).brokers) == {ALIVE, DOWN}
    [request] = admin.create_topics([NewTopic("t", 1, 1)], request_timeout=2).values()

    def has_ended():
        admin.poll(0.1)
        return request.done() and connects.get(DOWN)

    wait_for(has_ended, lambda: connects)
    assert request.exception() is not None
    assert connects[DOWN] < 50


def test_a_client_of_a_group_that_waits_for_brokers_logs_a_few_lines_of_each(monkeypatch, caplog):
    for module in (admin_requests, offsets):
        monkeypatch.setattr(module, "REQUEST_TIMEOUT_SECONDS", 6.0)
    brokers, partitions = MockBrokers(), [TopicPartition("orders", 0)]
    brokers.create("orders")
    config = brokers.config
    committed(config, "reports", partitions)
    del brokers
    with pytest.raises(BrokerUnreachableError):
        committed(config, "reports", partitions)
    assert 0 < sum("Connect to" in message for message in caplog.messages) < 60
