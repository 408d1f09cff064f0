"""Results as server-sent events: what is sent, when more is read, and what ends a stream."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.unit.ingest.queries.backend import PagesCursor
from tests.waiting import until

from headrace.errors import BrokerUnreachableError
from headrace.ingest.queries import stream
from headrace.ingest.queries.backend import ResultPage
from headrace.ingest.queries.stream import ResultStream, StreamLife, StreamTiming

DISCONNECT = {"type": "http.disconnect"}


class Client:
    """The other end of a stream: what it got, whether it reads, and when it leaves.

    Args:
        takes: after as many messages it reads no more; the first is of headers, the second an id.
    """

    def __init__(self, takes=None):
        self.messages, self.reads, self.left = [], asyncio.Event(), asyncio.Event()
        self.reads.set()
        self._takes = takes

    async def send(self, message):
        await self.reads.wait()
        self.messages.append(message)
        if len(self.messages) == self._takes:
            self.reads.clear()

    async def receive(self):
        await self.left.wait()
        return DISCONNECT

    @property
    def text(self):
        return b"".join(message.get("body", b"") for message in self.messages).decode()

    async def has(self, text):
        await until(lambda: text in self.text)


class Life:
    """A service for one stream."""

    def __init__(self):
        self.threads, self.draining = ThreadPoolExecutor(1), asyncio.Event()
        self.is_allowed, self.ends = True, 0

    def of_stream(self, **timing):
        timing = StreamTiming(poll_seconds=0.001, **timing)
        return StreamLife(self.threads, self.draining, lambda: self.is_allowed, self._ended, timing)

    def _ended(self):
        self.ends += 1


def streamed(pages, act, begin=0, takes=None, **timing):
    """Runs a stream of pages beside what a test does to its client and its service."""

    async def run():
        client, life, cursor = Client(takes), Life(), PagesCursor(pages, begin)
        results = ResultStream(cursor, client.receive, life.of_stream(**timing))
        sending = asyncio.create_task(results.send(client.send, (b"x-request-id", b"1")))
        await act(client, life, cursor)
        await sending
        life.threads.shutdown()
        return client, life

    return asyncio.run(run())


def page(*offsets, position=None, **facts):
    results = [(offset, b'{"n":%d}' % offset) for offset in offsets]
    return ResultPage(results, position or offsets[-1] + 1, is_end=True, **facts)


async def leave(client, life, cursor):
    last = cursor.pages[-1]  # nothing is read before this waits
    await client.has(f"id: {last.position - 1}\n")
    client.left.set()


def test_each_result_is_an_event_with_its_offset_behind_an_id_to_resume_at():
    client, life = streamed([page(7, 9), page(12)], leave, begin=5)
    assert client.messages[0]["status"] == 200
    assert dict(client.messages[0]["headers"])[b"content-type"] == b"text/event-stream"
    assert dict(client.messages[0]["headers"])[b"x-request-id"] == b"1"
    assert client.text == (
        ': heartbeat\nid: 4\n\nid: 7\ndata: {"n":7}\n\nid: 9\ndata: {"n":9}\n\n'
        'id: 12\ndata: {"n":12}\n\n'
    )
    assert client.messages[-1] == {"type": "http.response.body", "body": b""}
    assert life.ends == 1


def test_a_heartbeat_has_the_id_of_the_last_record_that_was_read(monkeypatch):
    monkeypatch.setattr(stream, "HEARTBEAT_SECONDS", 0.002)

    async def act(client, life, cursor):
        await client.has(": heartbeat\nid: 99\n\n")
        client.left.set()

    client, _ = streamed([page(7, position=100)], act)
    assert 'id: 7\ndata: {"n":7}\n\n' in client.text


def test_nothing_is_read_while_the_client_does_not_take_what_was_sent():
    async def act(client, life, cursor):
        await until(lambda: len(cursor.pages) < 100)
        for _ in range(50):
            await asyncio.sleep(0.001)
        assert len(cursor.pages) == 99
        client.left.set()
        client.reads.set()

    streamed([page(number) for number in range(100)], act, takes=2)


def test_a_page_is_sent_in_pieces_of_whole_events(monkeypatch):
    monkeypatch.setattr(ResultStream, "piece_bytes", 30)
    client, _ = streamed([page(*range(10, 20))], leave)
    pieces = [message["body"] for message in client.messages[2:-1]]
    assert len(pieces) == 5
    assert all(piece.endswith(b"\n\n") and piece.startswith(b"id: ") for piece in pieces)


def test_a_client_that_takes_nothing_is_given_up():
    async def act(client, life, cursor):
        await until(lambda: life.ends)

    _, life = streamed([page(1)], act, takes=2, send_seconds=0.005, end_seconds=0.005)
    assert life.ends == 1


@pytest.mark.parametrize(
    ("failure", "error"), [(ConnectionResetError(), ConnectionResetError), (None, TimeoutError)]
)
def test_a_stream_whose_headers_are_not_taken_has_ended(failure, error):
    async def send(message):
        if failure is not None:
            raise failure
        await asyncio.Event().wait()

    async def run():
        client, life = Client(), Life()
        stream_life = life.of_stream(send_seconds=0.005)
        results = ResultStream(PagesCursor([page(7)], 0), client.receive, stream_life)
        with pytest.raises(error):
            await results.send(send)
        life.threads.shutdown()
        return life

    assert asyncio.run(run()).ends == 1


@pytest.mark.parametrize("what", ["draining", "token", "client"])
def test_a_stream_ends_with_the_service_the_token_and_the_client(what):
    async def act(client, life, cursor):
        await client.has("id: 7")
        if what == "draining":
            life.draining.set()
        elif what == "token":
            life.is_allowed = False
        else:
            client.left.set()

    client, life = streamed([page(7)], act)
    assert client.messages[-1] == {"type": "http.response.body", "body": b""}
    assert life.ends == 1


def test_results_that_were_read_before_the_token_ended_are_not_sent_after_it(monkeypatch):
    monkeypatch.setattr(ResultStream, "piece_bytes", 1)

    async def act(client, life, cursor):
        await client.has("id: 7")
        life.is_allowed = False
        client.reads.set()

    client, _ = streamed([page(7, 8, 9)], act, takes=3)  # headers, a heartbeat, the first result
    assert '{"n":7}' in client.text
    assert '{"n":9}' not in client.text


def test_a_stream_ends_when_the_id_is_registered_again():
    async def nothing(client, life, cursor):
        pass

    client, _ = streamed([page(7, is_over=True), page(8)], nothing)
    assert '{"n":7}' in client.text
    assert '{"n":8}' not in client.text


def test_a_stream_goes_on_when_kafka_answers_again(caplog):
    away = BrokerUnreachableError("kafka:9092", "no answer")
    client, _ = streamed([page(7), away, page(8)], leave)
    assert client.text.endswith('id: 7\ndata: {"n":7}\n\nid: 8\ndata: {"n":8}\n\n')
    assert "retrying" in caplog.text


def test_a_defect_ends_the_stream_and_is_logged(caplog):
    async def nothing(client, life, cursor):
        pass

    _, life = streamed([ValueError("a defect")], nothing)
    assert life.ends == 1
    assert "a defect" in caplog.text
