"""What the HTTP service is told of queries and their results, without Kafka."""

import itertools
import json
import pickle
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import msgspec
import pytest
from tests.unit.queries.registry.flow import FLOW, write_project
from tests.unit.queries.registry.memory_topic import MemoryTopic

from headrace.errors import ExtraMissingError, QueryMissingError
from headrace.ingest.service import ingest_config
from headrace.kafka.client.admin_requests import LiveTopic
from headrace.model import OffsetRange, TopicPartition
from headrace.model.partitioning import partition_of_key
from headrace.project.check import load_project
from headrace.queries import kind
from headrace.queries import serve as query_service
from headrace.queries.records.result import QueryResult, ResultKind, decode_result
from headrace.queries.registry import registrations as query_registry
from headrace.queries.serve import (
    ProjectQueries,
    RegistrationKey,
    ResultRange,
    ResultReader,
    TopicCursor,
)
from headrace.settings import load_settings

NOW = datetime(2026, 5, 1, 10, 0, 0, 250_000, tzinfo=UTC)
COUNT = "SELECT count(*) FROM clicks"
RESULTS = TopicPartition("ads.results", 1)
RESULTS_PARTITIONS = 2


@pytest.fixture
def load(tmp_path, monkeypatch):
    """``load(flow)``: a project of a module."""
    monkeypatch.setattr(sys, "path", list(sys.path))

    def project(flow=FLOW):
        return load_project(load_settings(write_project(tmp_path, flow, bootstrap="k:9092"), {}))

    return project


@pytest.fixture
def topic(monkeypatch):
    times = (NOW + timedelta(seconds=second) for second in range(100))
    monkeypatch.setattr(query_registry, "datetime", SimpleNamespace(now=lambda _: next(times)))
    return MemoryTopic(monkeypatch)


@dataclass
class StoredRecord:
    place: int
    name: bytes
    content: bytes | None

    def offset(self):
        return self.place

    def key(self):
        return self.name

    def value(self):
        return self.content


class MemoryReader:
    """One partition of results, whose first records retention may have removed."""

    def __init__(self):
        self.stored, self.start, self.end, self.reads = [], 0, 0, []
        self.topic_id, self.cached_end = "first", None

    def add(self, query, minute, registered=NOW, emission=1, revision=1):
        result = QueryResult(
            query=query,
            registered=registered.isoformat().replace("+00:00", "Z"),
            revision=revision,
            begin=f"2026-05-01T10:{minute:02}:00Z",
            end=f"2026-05-01T10:{minute + 1:02}:00Z",
            emission=emission,
            kind=ResultKind.FINAL,
            facets={},
            is_other=False,
            values={"count(*)": 1},
            events=1,
        )
        self.add_value(query.encode(), msgspec.json.encode(result))

    def add_value(self, key, value):
        self.stored.append(StoredRecord(self.end, key, value))
        self.end += 1

    def known(self, partition, *, asked_since=None):
        end = self.end if asked_since or self.cached_end is None else self.cached_end
        return ResultRange(self.topic_id, OffsetRange(RESULTS, min(self.start, end), end))

    def create_again(self):
        self.__init__()
        self.topic_id = "second"

    def read(self, range_, take):
        self.reads.append((range_.start, range_.end))
        return all(take(record) for record in self.stored[range_.start : range_.end])


@pytest.fixture
def reader():
    return MemoryReader()


KEY = RegistrationKey(NOW, "clicks")


def cursor(reader, begin="earliest", registration=lambda: None):
    document = {
        "id": "a",
        "registered_at": "2026-05-01T10:00:00.250Z",
        "topic": "clicks",
        "revision": 1,
    }
    return TopicCursor(reader, RESULTS, document, begin, registration)


def minutes(page):
    return [(offset, int(json.loads(value)["begin"][14:16])) for offset, value in page.results]


def test_a_page_has_the_results_of_the_query_alone_and_passes_the_others(reader):
    reader.add("a", 1)
    reader.add("b", 1)
    reader.add_value(b"a", b"no result")
    reader.add_value(b"a", None)
    reader.add("a", 2, registered=NOW - timedelta(hours=1))
    reader.add("a", 3)
    reader.add("b", 4)
    results = cursor(reader)
    page = results.read()
    assert minutes(page) == [(0, 1), (5, 3)]
    assert (page.position, page.is_end, page.is_over) == (7, True, False)
    again = results.read()
    assert (again.results, again.position, again.is_end) == ([], 7, True)
    reader.add("a", 5)
    assert minutes(results.read()) == [(7, 5)]


@pytest.mark.parametrize("registered", ["yesterday", "2026-05-01T10:00:00"])
def test_a_result_of_another_program_with_a_wrong_time_is_passed(reader, registered):
    reader.add("a", 1)
    members = json.loads(reader.stored[0].content) | {"registered": registered}
    reader.add_value(b"a", json.dumps(members).encode())
    reader.add("a", 2)
    results = cursor(reader)
    page = results.read()
    assert (minutes(page), page.position) == ([(0, 1), (2, 2)], 3)
    assert len(results.newest(10).results) == 2


@pytest.mark.parametrize(
    ("begin", "offsets"),
    [("earliest", [2, 3]), ("latest", []), (0, [2, 3]), (3, [3]), (4, [])],
)
def test_a_cursor_begins_where_it_is_told_within_what_is_there(reader, begin, offsets):
    for minute in range(4):
        reader.add("a", minute)
    reader.start = 2
    page = cursor(reader, begin).read()
    assert [offset for offset, _ in page.results] == offsets
    assert page.position == 4


def test_a_cursor_from_the_latest_has_no_result_of_the_half_second_before(reader):
    for minute in range(3):
        reader.add("a", minute)
    reader.cached_end = 2
    assert cursor(reader, "latest").position == 3


def test_a_position_behind_an_end_that_was_asked_for_earlier_is_kept(reader):
    for minute in range(42):
        reader.add("a", minute)
    reader.cached_end = 40
    results = cursor(reader, 42)
    page = results.read()
    assert (page.results, page.position, page.is_end) == ([], 42, True)
    reader.add("a", 42)
    assert minutes(results.read()) == [(42, 42)]


def test_a_position_waits_where_brokers_say_an_earlier_end(reader):
    for minute in range(4):
        reader.add("a", minute)
    results = cursor(reader)
    assert results.read().position == 4
    reader.end = 2
    page = results.read()
    assert (page.results, page.position, page.is_end, page.is_over) == ((), 4, True, False)
    reader.end = 4
    reader.add("a", 4)
    assert minutes(results.read()) == [(4, 4)]


def test_a_topic_that_is_not_described_once_repeats_no_results(reader):
    for minute in range(3):
        reader.add("a", minute)
    results = cursor(reader)
    assert results.read().position == 3
    reader.end, reader.topic_id = 0, ""
    page = results.read()
    assert (page.results, page.position, page.is_end) == ((), 3, True)
    reader.end, reader.topic_id = 3, "first"
    assert (results.read().results, results.position) == ([], 3)


@pytest.mark.parametrize("count", [1, 5])
def test_a_topic_that_was_created_again_is_read_from_its_first_result(reader, count):
    for minute in range(3):
        reader.add("a", minute)
    results = cursor(reader)
    results.read()
    reader.create_again()
    for minute in range(count):
        reader.add("a", 10 + minute)
    assert minutes(results.read()) == [(number, 10 + number) for number in range(count)]


def test_a_cursor_from_the_latest_knows_its_topic(reader):
    reader.add("a", 1)
    results = cursor(reader, "latest")
    reader.create_again()
    reader.add("a", 2)
    assert minutes(results.read()) == [(0, 2)]


class Brokers:
    """What brokers say of a topic whose partitions are alike, in place of what asks them."""

    def __init__(self, monkeypatch):
        self.now, self.end, self.asks = 100.0, 0, 0
        self.partitions = RESULTS_PARTITIONS
        self.meanwhile = lambda: None
        monkeypatch.setattr(query_service, "broker_config", lambda settings: {})
        monkeypatch.setattr(query_service, "describe", self._describe)
        monkeypatch.setattr(query_service, "watermarks", self._watermarks)
        monkeypatch.setattr(query_service.time, "monotonic", lambda: self.now)

    def _describe(self, config, topics):
        self.asks += 1
        if self.end is None:
            return {}
        return {topic: LiveTopic(topic, "id", self.partitions, 1) for topic in topics}

    def _watermarks(self, config, partitions):
        ends, meanwhile = dict.fromkeys(partitions, (0, self.end)), self.meanwhile
        self.meanwhile = lambda: None
        meanwhile()
        return ends


@pytest.fixture
def brokers(monkeypatch):
    return Brokers(monkeypatch)


def known_end(results, **asked):
    return results.known(RESULTS, **asked).offsets.end


def test_ends_are_asked_for_twice_per_second(brokers):
    results = ResultReader(None)
    for brokers.now, brokers.end, end in ((1.0, 4, 4), (1.4, 5, 4), (1.6, 6, 6)):
        assert known_end(results) == end
    assert brokers.asks == 2


def test_ends_are_asked_for_again_for_a_position_that_is_newer(brokers):
    results = ResultReader(None)
    for brokers.now, brokers.end, since, end in (
        (1.0, 40, 0.0, 40),
        (1.2, 42, 1.1, 42),
        (1.3, 43, 1.1, 42),
    ):
        assert known_end(results, asked_since=since) == end
    assert brokers.asks == 2


def test_an_answer_that_was_asked_for_earlier_replaces_no_later_one(brokers):
    results = ResultReader(None)

    def ask_on_another_thread():
        brokers.now, brokers.end = 101.0, 42
        assert known_end(results) == 42

    brokers.end, brokers.meanwhile = 40, ask_on_another_thread
    assert [known_end(results), known_end(results)] == [42, 42]
    assert brokers.asks == 2


def test_a_topic_that_is_missing_has_no_results(brokers):
    brokers.end = None
    known = ResultReader(None).known(RESULTS)
    assert (known.topic_id, known.offsets.span) == ("", 0)


def test_results_are_in_the_declared_partition_though_the_topic_has_more(load, topic, brokers):
    queries = ProjectQueries(load())
    brokers.end = 0
    registered = queries.register(None, COUNT, "a", None).query
    places = []
    for partitions in (8, 16):
        brokers.partitions, brokers.now = partitions, brokers.now + 1
        results = queries.cursor(None, registered, "earliest")
        places.append(results._known().offsets.partition)
    assert places == [TopicPartition("ads.results", partition_of_key(b"a", 8))] * 2


def test_a_page_has_an_end_in_bytes_and_offsets(reader, monkeypatch):
    for name, value in {"page_bytes": 400, "min_offsets": 2, "max_offsets": 5}.items():
        monkeypatch.setattr(TopicCursor, name, value)
    for minute in range(3):
        reader.add("a", minute)
    for minute in range(6):
        reader.add("b", minute)
    reader.add("a", 9)
    results, pages = cursor(reader), []
    while not pages or not pages[-1].is_end:
        pages.append(results.read())
    assert [minutes(page) for page in pages] == [[(0, 0), (1, 1)], [(2, 2)], [], [(9, 9)]]
    assert reader.reads == [(0, 2), (2, 4), (4, 8), (8, 10)]


def test_another_registration_ends_the_results(reader):
    reader.add("a", 1)
    reader.add("a", 2, registered=NOW + timedelta(seconds=1))
    reader.add("a", 3, registered=NOW + timedelta(seconds=1))
    page = cursor(reader).read()
    assert minutes(page) == [(0, 1)]
    assert (page.is_over, page.is_end, page.position) == (True, True, 2)


def test_results_of_a_registration_that_was_corrected_are_passed(reader):
    later, asks = NOW + timedelta(seconds=1), []
    reader.add("a", 1)
    for minute in (2, 3):
        reader.add("a", minute, registered=later)
    reader.add("a", 4)
    page = cursor(reader, registration=lambda: asks.append(1) or KEY).read()
    assert (minutes(page), page.is_over, page.position) == ([(0, 1), (3, 4)], False, 4)
    assert len(asks) == 1


def test_no_result_of_another_topic_follows_when_another_program_changes_it(reader):
    reader.add("a", 1)
    reader.add("a", 2, revision=2)
    page = cursor(reader, registration=lambda: RegistrationKey(NOW, "payments")).read()
    assert (minutes(page), page.is_over) == ([(0, 1)], True)


@pytest.mark.parametrize("now", [None, RegistrationKey(NOW + timedelta(seconds=1), "clicks")])
def test_the_last_results_of_a_query_that_was_deleted_after_an_update_are_read(reader, now):
    """Also where its id is registered again."""
    reader.add("a", 1)
    reader.add("a", 2, revision=2)
    page = cursor(reader, registration=lambda: now).read()
    assert (minutes(page), page.is_over) == ([(0, 1), (1, 2)], False)


def test_a_later_revision_about_the_same_topic_is_read_on(reader):
    asks = []
    for revision in (1, 2, 2, 3):
        reader.add("a", revision, revision=revision)
    results = cursor(reader, registration=lambda: asks.append(1) or KEY)
    assert minutes(results.read()) == [(0, 1), (1, 2), (2, 2), (3, 3)]
    reader.add("a", 4, revision=3)
    assert minutes(results.read()) == [(4, 4)]
    assert len(asks) == 1


@pytest.mark.parametrize(
    ("now", "is_over"),
    [
        (KEY, False),
        (None, False),
        (RegistrationKey(NOW, "payments"), True),
        # Results of this registration may follow, which are read first.
        (RegistrationKey(NOW + timedelta(seconds=1), "clicks"), False),
    ],
)
def test_a_change_of_topic_ends_a_stream_that_has_more_to_read(reader, monkeypatch, now, is_over):
    clock = [0.0]
    monkeypatch.setattr("headrace.queries.serve.time.monotonic", lambda: clock[0])
    reader.add("a", 1)
    results = cursor(reader, registration=lambda: now)
    clock[0] = 15.0
    page = results.read()
    assert (page.is_over, minutes(page)) == (is_over, [] if is_over else [(0, 1)])


def test_a_stream_ends_when_the_id_belongs_to_another_registration(load, topic, reader):
    queries = ProjectQueries(load())
    queries._reader = reader
    query = queries.register(None, COUNT, "a", None).query
    results = queries.cursor(None, query, "earliest")
    later = NOW + timedelta(seconds=1)

    def is_over():
        reader.add("a", 1, registered=later)
        return results.read().is_over

    assert not is_over()
    queries.update(None, "a", None, None)
    assert not is_over()
    queries.cancel(None, "a")
    assert is_over()
    queries.register(None, COUNT, "a", None)
    assert is_over()


def test_a_stream_ends_soon_after_the_id_is_registered_again_though_that_has_no_result(
    load, topic, reader, monkeypatch
):
    queries = ProjectQueries(load())
    queries._reader = reader
    results = queries.cursor(None, queries.register(None, COUNT, "a", None).query, "earliest")
    seconds = itertools.count(time.monotonic() + 60, 60)
    monkeypatch.setattr(query_service.time, "monotonic", lambda: next(seconds))
    assert not results.read().is_over
    queries.cancel(None, "a")
    assert not results.read().is_over
    queries.register(None, COUNT, "a", None)
    reader.add("a", 1)
    page = results.read()
    assert (minutes(page), page.is_over) == ([(0, 1)], False)
    page = results.read()
    assert (page.results, page.position, page.is_over) == ((), 1, True)


def test_the_list_has_the_newest_result_of_each_group_of_this_registration(reader):
    reader.add("a", 7, registered=NOW - timedelta(hours=1))
    for minute in range(4):
        reader.add("a", minute)
    reader.add("a", 2, emission=2)
    results, is_cut = cursor(reader).newest(3)
    assert is_cut
    assert [(result.begin[14:16], result.emission) for result in map(decode_result, results)] == [
        ("01", 1),
        ("02", 2),
        ("03", 1),
    ]


def test_the_list_looks_at_the_newest_records_alone(reader, monkeypatch):
    monkeypatch.setattr(query_service, "MAX_SCANNED_RECORDS", 3)
    for minute in range(10):
        reader.add("a", minute)
    results, is_cut = cursor(reader).newest(100)
    assert (len(results), is_cut) == (3, True)
    assert reader.reads == [(7, 10)]


def test_a_list_that_is_whole_is_not_cut(reader):
    for minute in range(3):
        reader.add("a", minute)
    assert not cursor(reader).newest(3).is_cut


@pytest.mark.parametrize("limit", ["max_list_results", "max_list_bytes"])
def test_a_list_has_the_newest_results_up_to_a_number_and_a_size(reader, monkeypatch, limit):
    for minute in range(4):
        reader.add("a", minute)
    limits = {"max_list_results": 2, "max_list_bytes": 2 * len(reader.stored[0].content)}
    monkeypatch.setattr(TopicCursor, limit, limits[limit])
    results, is_cut = cursor(reader).newest(100)
    assert [decode_result(result).begin[14:16] for result in results] == ["02", "03"]
    assert is_cut


def test_registered_queries_are_documents_with_topic_and_offset(load, topic):
    queries = ProjectQueries(load())
    first = queries.register(None, COUNT, "a", timedelta(minutes=1))
    again = queries.register(None, COUNT, "a", None)
    assert (first.is_new, again.is_new) == (True, False)
    assert first.query.topic == "clicks"
    assert first.query.document == {
        "id": "a",
        "state": "live",
        "text": "SELECT count(*)\nFROM clicks\nWINDOW 1 minute",
        "topic": "clicks",
        "revision": 1,
        "registered_at": "2026-05-01T10:00:00.250Z",
        "updated_at": "2026-05-01T10:00:00.250Z",
        "expires_at": "2026-05-01T10:01:00.250Z",
        "offset": 0,
    }
    updated = queries.update("ads", "a", None, None)
    assert (updated.document["revision"], updated.document["offset"]) == (1, 2)
    assert queries.queries(None) == [updated]
    assert queries.query("ads", "a") == updated
    queries.cancel("ads", "a")
    assert queries.queries(None) == []


def test_each_request_reads_what_is_new_in_the_registry_alone(load, topic):
    queries = ProjectQueries(load())
    for number in range(5):
        queries.register(None, COUNT, f"q{number}", None)
    assert len(queries.queries(None)) == 5
    queries.query("ads", "q0")
    queries.cancel(None, "q1")
    assert len(queries.queries("ads")) == 4
    assert topic.taken == [0, 1, 2, 3, 4, 5]


def test_a_faulty_record_belongs_to_no_topic_and_has_no_results(load, topic):
    topic.write({}, "ads.queries", b"a", b"no query")
    queries = ProjectQueries(load())
    (known,) = queries.queries(None)
    assert (known.topic, known.document["state"], known.document["offset"]) == ("", "faulty", 0)
    assert "reason" in known.document
    with pytest.raises(QueryMissingError):
        queries.results(None, known, 1)


def test_the_topic_of_a_text_need_not_be_declared(load):
    assert ProjectQueries(load()).topic("SELECT count(*) FROM elsewhere") == "elsewhere"


def config_of(load, flow):
    return ingest_config(load(flow))


def test_the_service_loads_queries_of_a_project_that_declares_some(load):
    config = pickle.loads(pickle.dumps(config_of(load, FLOW)))
    assert isinstance(config.queries(), ProjectQueries)


def test_without_standing_queries_the_service_needs_no_extra_of_theirs(load, monkeypatch):
    def missing(extra):
        raise ExtraMissingError(extra, "pyarrow")

    monkeypatch.setattr(kind, "require_extra", missing)
    plain = FLOW.partition("ads = StandingQueries")[0]
    assert config_of(load, plain).queries is None
    with pytest.raises(ExtraMissingError):
        config_of(load, FLOW)
