"""librdkafka's own mock brokers, in this process: they can be told to fail, lag and forget."""

import ctypes

import confluent_kafka
from tests.integration.librdkafka import handle, library
from tests.waiting import FLUSH_SECONDS

PRODUCE, FETCH, LIST_OFFSETS, OFFSETS_FOR_LEADER_EPOCH = 0, 1, 2, 23
API_VERSIONS, INIT_PRODUCER_ID, END_TXN = 18, 22, 26


class _Memory(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_char_p), ("size", ctypes.c_size_t))


class _Header(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("value", ctypes.c_char_p), ("size", ctypes.c_ssize_t))


class _Content(ctypes.Union):
    _fields_ = (
        ("text", ctypes.c_char_p),
        ("number", ctypes.c_int32),
        ("memory", _Memory),
        ("header", _Header),
        ("room", ctypes.c_char * 64),
    )


class _Field(ctypes.Structure):
    """What librdkafka calls ``rd_kafka_vu_t``: one property of a record to produce."""

    _fields_ = (("kind", ctypes.c_int), ("content", _Content))


class MockBrokers:
    """Three brokers. What a request is answered is pushed before it is made."""

    def __init__(self):
        self._owner = confluent_kafka.Producer(
            {"bootstrap.servers": "-", "test.mock.num.brokers": "3"}
        )
        self._functions = library()
        self._functions.rd_kafka_handle_mock_cluster.restype = ctypes.c_void_p
        found = self._functions.rd_kafka_handle_mock_cluster(handle(self._owner))
        self._cluster = ctypes.c_void_p(found)
        self._functions.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
        servers = self._functions.rd_kafka_mock_cluster_bootstraps(self._cluster)
        self.config = {"bootstrap.servers": servers.decode()}

    def create(self, topic, partitions=1):
        """A topic whose partitions are all led by broker 1."""
        self._call("topic_create", topic.encode(), partitions, 3)
        for partition in range(partitions):
            self.lead(topic, partition, 1)

    def lead(self, topic, partition, broker):
        """Make a broker the leader."""
        self._call("partition_set_leader", topic.encode(), partition, broker)

    def coordinate(self, group, broker):
        """Make a broker the coordinator of a group."""
        self._call("coordinator_set", b"group", group.encode(), broker)

    def coordinate_transactions(self, transactional_id, broker):
        """Make a broker the coordinator of a producer's transactions."""
        self._call("coordinator_set", b"transaction", transactional_id.encode(), broker)

    def append(self, topic, values, partition=0):
        """Write records, in order, in one batch a call."""
        sender = confluent_kafka.Producer({**self.config, "linger.ms": "50"})
        for value in values:
            sender.produce(topic, value, partition=partition)
        assert sender.flush(FLUSH_SECONDS) == 0

    def append_with_header(self, topic, value, name, partition=0):
        """Write a record with a header whose name is any bytes, which Python clients can't."""
        fields = (_Field * 4)(
            _Field(1, _Content(text=topic.encode())),
            _Field(3, _Content(number=partition)),
            _Field(4, _Content(memory=_Memory(value, len(value)))),
            _Field(9, _Content(header=_Header(name, b"v", 1))),
        )
        sender = confluent_kafka.Producer(self.config)
        self._functions.rd_kafka_produceva.restype = ctypes.c_void_p
        assert not self._functions.rd_kafka_produceva(handle(sender), fields, ctypes.c_size_t(4))
        assert sender.flush(FLUSH_SECONDS) == 0

    def delete_before(self, topic, partition, offset):
        """What retention does."""
        self._call("partition_delete_records", topic.encode(), partition, ctypes.c_int64(offset))

    def answer(self, request, code, times=1):
        """The next answers to a kind of request, from whichever broker, are this error."""
        codes = (ctypes.c_int * times)(*[code] * times)
        self._call(
            "push_request_errors_array", ctypes.c_int16(request), ctypes.c_size_t(times), codes
        )

    def answer_after(self, milliseconds, brokers=(1, 2, 3)):
        """Every answer of these brokers takes so long."""
        for broker in brokers:
            self._call("broker_set_rtt", broker, milliseconds)

    def hold(self, broker, request):
        """Do what the next request of a kind asks for, and answer an hour later."""
        sizes = ctypes.c_size_t(1), ctypes.c_int(0), ctypes.c_int(3_600_000)
        self._call("broker_push_request_error_rtts", broker, ctypes.c_int16(request), *sizes)

    def drop(self, broker, request, times):
        """End the connections over which the next requests of a kind come."""
        failures = (ctypes.c_int(-195), ctypes.c_int(0)) * times
        self._call(
            "broker_push_request_error_rtts",
            *(broker, ctypes.c_int16(request), ctypes.c_size_t(times), *failures),
        )

    def disconnect(self, of=None):
        """End all connections, or those of a broker; the next ones are accepted."""
        for broker in (1, 2, 3) if of is None else (of,):
            self._call("broker_set_down", broker)
            self._call("broker_set_up", broker)

    def stop(self, broker):
        """End the connections to a broker, and refuse further ones."""
        self._call("broker_set_down", broker)

    def count_requests(self):
        """Start with what ``requests`` returns."""
        self._call("start_request_tracking")

    def requests(self, request):
        """How many requests of a kind have come."""
        functions, count = self._functions, ctypes.c_size_t()
        functions.rd_kafka_mock_get_requests.restype = ctypes.POINTER(ctypes.c_void_p)
        functions.rd_kafka_mock_request_api_key.restype = ctypes.c_int16
        came = functions.rd_kafka_mock_get_requests(self._cluster, ctypes.byref(count))
        kinds = [
            functions.rd_kafka_mock_request_api_key(ctypes.c_void_p(came[n]))
            for n in range(count.value)
        ]
        functions.rd_kafka_mock_request_destroy_array(came, count)
        return kinds.count(request)

    def answer_as_asked(self, request):
        """No more errors for a kind of request."""
        self._call("clear_request_errors", ctypes.c_int16(request))

    def move(self, broker, host, port):
        """Let clients find a broker at another address."""
        self._call("broker_set_host_port", broker, host.encode(), port)

    def _call(self, name, *arguments):
        getattr(self._functions, f"rd_kafka_mock_{name}")(self._cluster, *arguments)
