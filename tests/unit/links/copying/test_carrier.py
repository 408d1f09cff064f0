"""Records between a fake reader and a fake writer: what is sent, and which positions follow."""

from __future__ import annotations

import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException

from headrace.errors import AuthorizationError, LinkDamagedError, LinkRecordError
from headrace.kafka.client.admin_requests import LiveTopic
from headrace.kafka.origin import ORIGIN
from headrace.kafka.read.resume import Position, SourceChangedError
from headrace.links import source_reader
from headrace.links import target as target_module
from headrace.links.copying import carrier
from headrace.links.copying.carrier import CopyCarrier
from headrace.links.mirror.loop_check import LoopCheck
from headrace.links.mirror.plan import MirrorPlan
from headrace.links.site_times import SITE_TIMES
from headrace.links.target import Rejection
from headrace.model import TopicPartition

SOURCE = {"bootstrap.servers": "s:1"}
LINK = MirrorPlan("m", "headrace.mirror.m", "waw", "central", SOURCE, {}, {"a": "waw.a"})
A, COPY = TopicPartition("a", 0), TopicPartition("waw.a", 0)
END = KafkaError(KafkaError._PARTITION_EOF)
DAMAGE = KafkaError(KafkaError._BAD_MSG, "MessageSet at offset 6 failed CRC32C check")


class Message:
    def __init__(self, offset, *, headers=(), epoch=3, error=None):
        self.topic, self.partition = (lambda: "a"), (lambda: 0)
        self.offset, self.error = (lambda: offset), (lambda: error)
        self.leader_epoch, self.value = (lambda: epoch), (lambda: b"value")
        self._headers = headers

    def headers(self):
        if self._headers is None:
            raise SystemError
        return list(self._headers)

    def set_headers(self, headers):
        """As the client's, which keeps them."""


class Fakes:
    def __init__(self):
        self.messages, self.sent, self.committed, self.assigned = [], [], [], []
        self.config, self.end, self.topic_id = {}, 20, "id"
        self.one_by_one, self.told, self.copy_is_recreated = None, [], False
        self.skipped = []

    def consumer(self, config, _, tuning):
        self.config = config | tuning
        return SimpleNamespace(
            consume=lambda *_: self.messages,
            assign=self.assigned.append,
            close=lambda: None,
            get_watermark_offsets=self.watermarks,
        )

    def watermarks(self, *_, cached):
        if self.end is None:
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
        return 0, self.end

    def writer(self, *_, one_by_one):
        self.one_by_one = one_by_one
        return SimpleNamespace(
            send=lambda _source, _copy, message, headers: self.sent.append(
                (message.offset(), headers)
            ),
            send_own=lambda *record: self.told.append(record),
            poll=lambda: None,
            begin=lambda: None,
            flush=lambda: None,
            close=lambda: None,
            commit=lambda offsets, _: self.committed.append(offsets),
            check_topics=self.check_copies,
            known_ids=lambda topics: {(topic, "copy-id") for topic in topics},
        )

    def check_copies(self, topics):
        assert set(topics) <= {"waw.a"}
        if topics and self.copy_is_recreated:
            raise SourceChangedError

    def describe(self, *_):
        return {"a": LiveTopic("a", self.topic_id, 1, 1)} if self.topic_id else {}


@pytest.fixture
def fakes(monkeypatch):
    made = Fakes()
    monkeypatch.setattr(source_reader, "consumer", made.consumer)
    monkeypatch.setattr(carrier, "LinkWriter", made.writer)
    monkeypatch.setattr(target_module, "describe", made.describe)
    monkeypatch.setattr(LoopCheck, "look", lambda _, *record: made.skipped.append(record))
    return made


def copier_from(position, rejections=None):
    copier = CopyCarrier(LINK, "id", rejections)
    copier.add({COPY: position})
    return copier


def test_the_epoch_that_is_committed_belongs_to_the_offset_behind_the_last_record(fakes):
    fakes.messages = [Message(5, epoch=3), Message(8, epoch=4, error=END)]
    copier = copier_from(Position(5, "id"))
    copier.move(0)
    copier.commit(None)
    [[offset]] = fakes.committed
    assert (offset.topic, offset.offset, offset.metadata) == ("waw.a", 8, "id 6 3")


def test_a_position_names_the_copy(fakes):
    fakes.messages = [Message(5)]
    copier = copier_from(Position(5, "id", target_id="copy-id"))
    copier.move(0)
    copier.commit(None)
    [[offset]] = fakes.committed
    assert offset.metadata == "id 6 3 copy-id"


def test_it_is_read_on_from_the_offset_that_the_epoch_belongs_to(fakes):
    copier = copier_from(Position(8, "id", 6, 3, is_committed=True))
    [[start]] = fakes.assigned
    assert (start.offset, start.leader_epoch) == (6, 3)
    copier.commit(None)
    assert fakes.committed == []  # nothing has moved


def test_a_name_of_a_header_that_is_not_utf_8_names_the_record(fakes):
    fakes.messages = [Message(5), Message(6, headers=None), Message(7)]
    copier = copier_from(Position(5, "id"))
    with pytest.raises(LinkRecordError) as raised:
        copier.move(0)
    assert (raised.value.partition, raised.value.offset) == ("a/0", 6)
    assert copier.commit(None)["records"] == 1
    assert [offset.offset for offset in fakes.committed[0]] == [6]


def test_a_record_that_the_target_has_refused_is_not_sent_again(fakes):
    fakes.messages = [Message(5), Message(6), Message(7)]
    copier = copier_from(Position(5, "id"), {A: Rejection(6, "too large")})
    with pytest.raises(LinkRecordError, match="too large"):
        copier.move(0)
    assert [offset for offset, _ in fakes.sent] == [5]
    assert fakes.one_by_one


class OtherOrigin(MirrorPlan):
    origin_site = "waw-2"


def test_the_site_that_origins_name_may_be_another_than_that_of_the_topic(fakes):
    fakes.messages = [Message(5)]
    copier = CopyCarrier(OtherOrigin("m", "g", "waw", "central", SOURCE, {}, LINK.copies), "id")
    copier.add({COPY: Position(5, "id")})
    copier.move(0)
    assert fakes.sent == [(5, [(ORIGIN, b"waw-2/a/0/5")])]


@pytest.mark.parametrize(
    ("sites", "counter"),
    [
        ((), "records"),
        (("waw",), "records"),
        (("ams", "waw", "waw"), "records"),
        (("waw", "ams"), "loops_skipped"),
        (("waw", "ams", "waw"), "loops_skipped"),
        (("central",), "loops_skipped"),
        (("central", "waw"), "loops_skipped"),
    ],
)
def test_a_record_that_was_copied_within_the_source_is_no_loop(sites, counter):
    headers = [(ORIGIN, f"{site}/x/0/1".encode()) for site in sites]
    assert LINK.filter.counter_of(headers) == counter


@pytest.mark.parametrize("site", ["waw", "central"])
def test_records_that_have_been_at_a_site_before_are_skipped_and_counted(fakes, site):
    loop = [(ORIGIN, f"{site}/x/0/1".encode()), (ORIGIN, b"ams/x/0/1")]
    fakes.messages = [Message(5, headers=loop), Message(6, headers=[(ORIGIN, b"ams/x/0/2")])]
    copier = copier_from(Position(5, "id"))
    copier.move(0)
    counts = copier.commit(None)
    assert (counts["records"], counts["loops_skipped"]) == (1, 1)
    assert fakes.sent == [(6, [(ORIGIN, b"ams/x/0/2"), (ORIGIN, b"waw/a/0/6")])]
    assert fakes.skipped == [(A, 5, tuple(loop))]


def test_a_read_that_is_forbidden_names_the_source(fakes):
    error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    fakes.messages = [Message(0, error=error)]
    with pytest.raises(AuthorizationError, match="'READ', resource 'topic a at site waw'"):
        copier_from(Position(5, "id")).move(0)


@pytest.mark.parametrize("topic_id", ["", "other"])
def test_a_topic_that_was_deleted_is_noticed_without_a_record(fakes, topic_id):
    copier = copier_from(Position(5, "id"))
    copier.check_topics()
    fakes.topic_id = topic_id
    with pytest.raises(SourceChangedError):
        copier.check_topics()


def test_nothing_is_committed_into_a_copy_that_was_recreated(fakes):
    fakes.messages = [Message(5)]
    copier = copier_from(Position(5, "id"))
    copier.move(0)
    fakes.copy_is_recreated = True
    with pytest.raises(SourceChangedError):
        copier.commit(None)
    with pytest.raises(SourceChangedError):
        copier.check_topics()
    assert fakes.committed == []


def test_two_clusters_are_asked_at_the_same_time(fakes, monkeypatch):
    both = threading.Barrier(2, timeout=10)

    def describe(*_):
        both.wait()
        return fakes.describe()

    monkeypatch.setattr(target_module, "describe", describe)
    monkeypatch.setattr(fakes, "check_copies", lambda _: both.wait())
    copier = copier_from(Position(5, "id"))
    copier.check_topics()
    assert not both.broken


def test_within_one_cluster_one_request_compares_the_topics_of_both_ends(fakes, monkeypatch):
    requests, copy = [], LiveTopic("waw.a", "copy-id", 1, 1)

    def describe(_, names):
        requests.append(sorted(names))
        return {"a": LiveTopic("a", "id", 1, 1), "waw.a": copy}

    monkeypatch.setattr(target_module, "describe", describe)
    fakes.messages = [Message(5)]
    copier = CopyCarrier(replace(LINK, target=SOURCE), "id")
    copier.add({COPY: Position(5, "id")})
    copier.move(0)
    copier.commit(None)
    assert requests == [["a", "waw.a"]]
    copy = replace(copy, topic_id="other")
    with pytest.raises(SourceChangedError):
        copier.check_topics()


@pytest.mark.parametrize(("end", "lag"), [(20, 14), (OFFSET_INVALID, None), (None, None), (3, 0)])
def test_the_lag_is_from_the_next_record_to_the_end(fakes, end, lag):
    fakes.messages, fakes.end = [Message(5)], end
    copier = copier_from(Position(5, "id"))
    copier.move(0)
    assert copier.lags() == {A: lag}


def test_a_broker_of_the_source_that_is_silent_is_left_within_the_time_of_the_project(
    fakes, monkeypatch
):
    CopyCarrier(LINK, "id")
    assert fakes.config["socket.timeout.ms"] == "20000"
    assert fakes.config["client.id"] == source_reader.process_name()
    CopyCarrier(
        MirrorPlan("m", "g", "waw", "central", SOURCE | {"socket.timeout.ms": "5000"}, {}, {}), "id"
    )
    assert fakes.config["socket.timeout.ms"] == "5000"


def test_the_time_up_to_which_a_partition_is_copied_goes_with_its_records(fakes, monkeypatch):
    answers = iter([(0, {}), (1_000, {A: 7}), (2_000, {A: 7}), (2_000, {A: 7})])
    ends = SimpleNamespace(ask_for=lambda _: None, close=lambda: None)
    monkeypatch.setattr(carrier, "SourceEnds", lambda _: ends)
    copier = CopyCarrier(replace(LINK, reports_times=True), "id")
    copier.add({COPY: Position(5, "id", target_id="copy-id")})
    for messages, told in (
        ([], []),
        ([Message(5)], []),  # the source has had one more at that time
        ([Message(6)], [(SITE_TIMES, b"waw.a/0", b"2000 copy-id")]),
        ([], []),  # the same answer as before
    ):
        fakes.messages, fakes.told, ends.latest = messages, [], next(answers)
        copier.move(0)
        copier.commit(None)
        assert fakes.told == told


@pytest.mark.parametrize("following", [[], [Message(9)], [Message(9, error=END)]])
def test_damaged_records_are_named_after_what_precedes_them_was_committed(fakes, following):
    fakes.messages = [Message(5), Message(6, error=DAMAGE), *following]
    copier = copier_from(Position(5, "id"))
    copier.move(0)
    copier.commit(None)
    assert [offset for offset, _ in fakes.sent] == [5]
    assert [offset.offset for [offset] in fakes.committed] == [6]
    with pytest.raises(LinkDamagedError) as refusal:
        copier.move(0)
    error = refusal.value
    assert (error.code, error.source, error.offset) == ("MIRROR_DAMAGED", ("a", 0), 6)
    assert "accept m a/0 --to OFFSET" in error.remedy


def test_records_of_other_partitions_that_came_with_damaged_ones_are_copied(fakes):
    other = Message(3)
    other.partition = lambda: 1
    copier = CopyCarrier(LINK, "id")
    copier.add({COPY: Position(6, "id"), TopicPartition("waw.a", 1): Position(3, "id")})
    fakes.messages = [Message(6, error=DAMAGE), other]
    copier.move(0)
    assert [offset for offset, _ in fakes.sent] == [3]
