"""A spool for each topic: none waits for another's, and none is forgotten."""

import threading

from tests.waiting import LIMIT_SECONDS

from headrace.ingest.spool.loader import SendResult
from headrace.ingest.spool.record import SpoolRecord
from headrace.ingest.spool.spool import SpoolLimits
from headrace.ingest.spool.topic_spools import TopicSpools

LIMITS = SpoolLimits(budget_bytes=100_000)


def record(topic, text):
    return SpoolRecord(topic, b"k", text.encode(), (), 5, None)


class Kafka:
    """Takes records but those of the topics that wait."""

    def __init__(self, *waiting):
        self.waiting, self.taken, self.all = set(waiting), [], threading.Event()

    def send(self, records, _):
        if records[0].topic in self.waiting:
            return SendResult(waiting=range(len(records)), reason="no leader")
        self.taken += [one.value.decode() for one in records]
        self.all.set()
        return SendResult()


def test_a_topic_that_waits_holds_up_no_other(tmp_path):
    spools = TopicSpools(tmp_path, LIMITS, ["stuck", "free"])
    for topic, spool in spools.open.items():
        spool.append([record(topic, topic)])
    kafka = Kafka("stuck")
    spools.load(lambda: kafka.send)
    assert kafka.all.wait(LIMIT_SECONDS)
    spools.close()
    again = TopicSpools(tmp_path, LIMITS, ["stuck", "free"])
    assert kafka.taken == ["free"]
    assert {topic: one.records for topic, one in again.stats().items()} == {"stuck": 1, "free": 0}
    again.close()


def test_a_folder_that_can_be_no_topics_is_left_alone_and_said(tmp_path, caplog):
    (tmp_path / "lost+found").mkdir()
    spools = TopicSpools(tmp_path, LIMITS, ["events"])
    assert list(spools.stats()) == ["events"]
    assert list((tmp_path / "lost+found").iterdir()) == []
    assert caplog.messages == [f"{tmp_path}: ignored, not the spool of a topic: lost+found"]
    spools.close()


def test_a_full_spool_leaves_the_others_their_budget(tmp_path):
    spools = TopicSpools(tmp_path, LIMITS, ["full", "free"])
    spools.open["full"].append([record("full", "x" * 99_500)])
    spools.open["free"].append([record("free", "x" * 90_000)])
    assert [spools.open[topic].is_full for topic in ("full", "free")] == [True, False]
    spools.close()


def test_records_of_a_topic_that_has_no_spool_any_more_are_replayed(tmp_path):
    before = TopicSpools(tmp_path, LIMITS, ["gone"])
    before.open["gone"].append([record("gone", "left")])
    before.close()
    spools, kafka = TopicSpools(tmp_path, LIMITS, ["other"]), Kafka()
    assert list(spools.open) == ["other"]
    spools.load(lambda: kafka.send)
    assert kafka.all.wait(LIMIT_SECONDS)
    spools.close()
    assert kafka.taken == ["left"]
