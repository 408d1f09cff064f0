"""An instance is killed at each call of its clients; the next one begins where it is committed.

It runs for each kind of links that copy, with records of all kinds that their filters distinguish.
"""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import ClassVar

import confluent_kafka
import pytest

from headrace.kafka.client.admin_requests import LiveTopic
from headrace.kafka.origin import ORIGIN
from headrace.kafka.read.resume import Position
from headrace.links import source_reader
from headrace.links import target as target_module
from headrace.links.copying import carrier
from headrace.links.copying.carrier import CopyCarrier
from headrace.links.copying.kind import CopyKind
from headrace.links.copying.plan import CopyPlan
from headrace.links.copying.positions import positions_of
from headrace.links.copying.status import CopyStatus
from headrace.links.mirror.loop_check import LoopCheck
from headrace.model import TopicPartition
from headrace.project.kinds import kinds
from headrace.service.figures import counter

# Where a kind copies only records with a header, that header is among them.
HEADERS = ([], [("other", b"")], [(ORIGIN, b"central/b/0/3")])
RECORDS = 8
COPY = TopicPartition("waw.a", 0)


@dataclass(frozen=True)
class RelayStatus(CopyStatus):
    without_header: int = counter("records", "records without the header", "")

    kind: ClassVar[str] = "relay"
    folder: ClassVar[str] = "relays"


class RelayPlan(CopyPlan):
    """A kind whose filter leaves out the first record, and two of three."""

    status = RelayStatus

    @property
    def filter(self):
        return SimpleNamespace(
            counter_of=lambda headers: "records" if "other" in dict(headers) else "without_header"
        )


PLANS = [RelayPlan, *(kind.plan_type for kind in kinds() if isinstance(kind, CopyKind))]


class Killed(BaseException):
    """The process was killed here."""


class Sites:
    """A source with some records, and what readers of committed records see at the target.

    Attributes:
        copied: offsets of the records.
        committed: the position.
        steps: calls until an instance is killed.
    """

    def __init__(self, link, steps):
        self.link, self.copied, self.committed, self.steps = link, [], None, steps

    def step(self, *_):
        self.steps -= 1
        if self.steps < 0:
            raise Killed

    def consumer(self, *_):
        at = SimpleNamespace(offset=0)

        def assign(partitions):
            at.offset = partitions[0].offset

        def consume(*_):
            self.step()
            offsets = range(at.offset, min(at.offset + 2, RECORDS))
            at.offset += len(offsets)
            return [record(offset) for offset in offsets]

        return SimpleNamespace(assign=assign, consume=consume, close=lambda: None)

    def writer(self, *_, one_by_one):
        assert not one_by_one
        sent = []

        def send(_source, _copy, message, _headers):
            self.step()
            sent.append(message.offset())

        def commit(offsets, _):
            self.step()
            self.copied += sent
            self.committed = offsets
            sent.clear()
            self.step()  # the answer is lost

        return SimpleNamespace(
            send=send,
            commit=commit,
            begin=self.step,
            flush=self.step,
            poll=lambda: None,
            check_topics=self.step,
        )

    def run(self):
        """An instance copies, and commits every second time."""
        start = positions_of(self.committed)[COPY] if self.committed else Position(0, "id")
        copier = CopyCarrier(self.link, "id")
        copier.add({COPY: start})
        for number in range(RECORDS):
            copier.move(0)
            if number % 2:
                copier.commit(None)


def headers_of(offset):
    return list(HEADERS[offset % len(HEADERS)])


def record(offset):
    return SimpleNamespace(
        topic=lambda: "a",
        partition=lambda: 0,
        offset=lambda: offset,
        error=lambda: None,
        leader_epoch=lambda: 3,
        value=lambda: b"value",
        headers=lambda: headers_of(offset),
    )


@pytest.fixture(params=PLANS, ids=lambda plan: plan.status.kind)
def sites(monkeypatch, request):
    """``sites(steps)``: those whose first instance is killed after so many calls."""
    group, servers = f"headrace.{request.param.status.kind}.m", {"bootstrap.servers": "s:1"}
    link = request.param("m", group, "waw", "central", servers, {}, {"a": "waw.a"})

    def make(steps):
        made = Sites(link, steps)
        monkeypatch.setattr(source_reader, "consumer", made.consumer)
        monkeypatch.setattr(carrier, "LinkWriter", made.writer)
        monkeypatch.setattr(target_module, "describe", lambda *_: {"a": LiveTopic("a", "id", 1, 1)})
        monkeypatch.setattr(LoopCheck, "look", lambda *_: None)
        return made

    return make


def test_whenever_an_instance_is_killed_each_record_is_copied_once_in_order(sites):
    undisturbed = sites(1_000)
    undisturbed.run()
    places = 1_000 - undisturbed.steps
    assert places > 2 * RECORDS
    counter_of = undisturbed.link.filter.counter_of
    expected = [offset for offset in range(RECORDS) if counter_of(headers_of(offset)) == "records"]
    assert expected
    for steps in range(places):
        killed = sites(steps)
        with pytest.raises(Killed):
            killed.run()
        killed.steps = 1_000
        killed.run()
        assert killed.copied == expected, steps
        [position] = killed.committed
        assert isinstance(position, confluent_kafka.TopicPartition)
        assert position.offset == RECORDS
