"""What accepting a loss of a dispatcher commits, and keeps in the ledger."""

from types import SimpleNamespace

import pytest

from headrace.errors import LinkLossError, LinkNotRefusedError
from headrace.kafka.client.admin_requests import LiveTopic
from headrace.links.dispatcher import standing as dispatchers
from headrace.links.dispatcher.routes.route import DispatcherRoute
from headrace.links.dispatcher.standing import accept_loss
from headrace.links.starts import Starts
from headrace.model import TopicPartition
from headrace.spark.claimed_query import CommittedPosition

PARTITION = TopicPartition("clicks", 0)
ROUTE = DispatcherRoute(
    "d", "headrace.dispatcher.d.waw", "central", "waw", {}, {}, "clicks", "events"
)
TARGET_END = 5_000


@pytest.mark.parametrize(
    ("topic_id", "accepted", "scan_from", "target_end"),
    [
        ("id", 1_200, 4_000, None),  # records are gone: copies of later ones may be there
        ("id", 900, TARGET_END, TARGET_END),  # truncated: offsets mean other records
        ("new", 0, TARGET_END, TARGET_END),  # recreated
        ("new", 1_200, TARGET_END, TARGET_END),
    ],
)
def test_copies_of_other_records_are_not_looked_for(
    monkeypatch, topic_id, accepted, scan_from, target_end
):
    loss = LinkLossError("dispatcher", "d", "waw", PARTITION.path, 1_000, accepted, "it is gone")
    before = CommittedPosition(1_000, "id", 4_000, "host-1")
    committed, kept = {}, []
    for name, value in {
        "routes_of": lambda *_: [ROUTE],
        "find_starts": lambda _: Starts({}, {PARTITION: loss}, frozenset()),
        "live_topic": lambda *_: LiveTopic("clicks", topic_id, 1, 1, frozenset()),
        "committed_positions": lambda *_: {PARTITION: before},
        "latest_offsets": lambda _, copies: dict.fromkeys(copies, (TARGET_END, 0)),
        "commit_positions": lambda _, positions: committed.update(positions),
        "accepted_folder": lambda *_: SimpleNamespace(write=kept.append),
    }.items():
        monkeypatch.setattr(dispatchers, name, value)
    accept_loss(SimpleNamespace(settings=None), SimpleNamespace(name="d"), "waw", PARTITION)
    assert committed == {PARTITION: CommittedPosition(accepted, topic_id, scan_from, "host-1")}
    [range_] = kept
    assert (range_.source, range_.topic_id, range_.target_id) == (PARTITION, topic_id, topic_id)
    assert (range_.start, range_.end, range_.target_end) == (1_000, accepted, target_end)


def test_what_is_not_lost_is_not_accepted(monkeypatch):
    known = Starts({PARTITION: CommittedPosition(8)}, {}, frozenset())
    monkeypatch.setattr(dispatchers, "routes_of", lambda *_: [ROUTE])
    monkeypatch.setattr(dispatchers, "find_starts", lambda _: known)
    with pytest.raises(LinkNotRefusedError) as raised:
        accept_loss(SimpleNamespace(settings=None), SimpleNamespace(name="d"), "waw", PARTITION)
    assert raised.value.code == "DISPATCHER_NOT_REFUSED"
