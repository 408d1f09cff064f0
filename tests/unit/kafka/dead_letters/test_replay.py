from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ReplayRefusedError
from headrace.kafka.client.admin_requests import LiveTopic
from headrace.kafka.dead_letters import replay as replay_module
from headrace.kafka.dead_letters.letters import StoredDeadLetter
from headrace.kafka.dead_letters.replay import MAX_METADATA_BYTES, DeadLetterFilter, decode, encode
from headrace.model import DeadLetter, TopicPartition


@given(st.integers(0, 1 << 60), st.sets(st.integers(0, 50_000)))
def test_offsets_survive_as_text(first, steps):
    offsets = {first + step for step in steps}
    assert decode(first, encode(first, offsets)) == offsets


def test_a_hundred_thousand_replayed_in_long_runs_fit_beside_an_offset():
    offsets = [one for one in range(100_000) if one // 500 % 3]
    assert len(encode(0, offsets)) <= MAX_METADATA_BYTES


def stored(reason: str = "not-json", pipeline: str = "p", offset: int = 7) -> StoredDeadLetter:
    letter = DeadLetter(TopicPartition("clicks", 2), offset, reason, "", None, None)
    return StoredDeadLetter(letter, pipeline, "1", "", 0, (TopicPartition("clicks.dead", 0), 0), 0)


@pytest.mark.parametrize(
    ("partitions", "own", "key", "taken"),
    [(3, 2, b"k", 2), (2, 2, b"k", 0), (2, 5, None, 1), (2, -5, b"k", 0), (2, -5, None, 1)],
)
def test_a_replayed_record_names_the_partition_that_it_goes_to(partitions, own, key, taken):
    letter = DeadLetter(TopicPartition("clicks", own), 7, "", "", key, None)
    found = StoredDeadLetter(letter, "p", "1", "", 1, (TopicPartition("clicks.dead", 0), 0), 0)
    sent = replay_module._original([found], LiveTopic("clicks", "id", partitions, 1))
    assert (sent.topic, sent.partition) == ("clicks", taken)
    assert dict(sent.headers) == {
        "headrace-replays": b"2",
        "headrace-replay-for": f"clicks/id/{taken}:p".encode(),
    }


def test_an_empty_filter_holds_every_dead_letter():
    assert stored() in DeadLetterFilter()


def test_a_filter_holds_what_matches_each_of_its_members():
    clicks = frozenset({"clicks/2:7"})
    chosen = DeadLetterFilter(frozenset({"not-json"}), frozenset({"p"}), clicks)
    assert stored() in chosen
    assert stored(reason="wrong-type") not in chosen
    assert stored(pipeline="q") not in chosen
    assert stored(offset=8) not in chosen


def test_a_filter_by_time_holds_what_was_written_since():
    assert stored() in DeadLetterFilter(since_ms=0)
    assert stored() not in DeadLetterFilter(since_ms=1)


@pytest.mark.parametrize(
    ("broker_bytes", "is_sent"), [(4096, True), (0, True), (100, True), (10, False)]
)
def test_what_the_brokers_would_not_remember_is_not_sent(monkeypatch, broker_bytes, is_sent):
    letters = [
        StoredDeadLetter(
            DeadLetter(TopicPartition("clicks", 0), offset, "not-json", "", None, None),
            "p" if offset % 3 else "q",
            "1",
            "",
            0,
            (TopicPartition("clicks.dead", 0), offset),
            0,
        )
        for offset in range(60)
    ]
    sent = []
    monkeypatch.setattr(replay_module, "scan", lambda *_: letters)
    monkeypatch.setattr(replay_module, "replayed", lambda *_: set())
    monkeypatch.setattr(replay_module, "offset_metadata_bytes", lambda _: broker_bytes)
    monkeypatch.setattr(
        replay_module, "describe", lambda *_: {"clicks": LiveTopic("clicks", "id", 1, 1)}
    )
    monkeypatch.setattr(replay_module, "latest_offsets", ends)
    monkeypatch.setattr(replay_module, "opened_windows", lambda *_: [])
    monkeypatch.setattr(replay_module, "closed_windows", lambda *_: [])
    monkeypatch.setattr(replay_module, "sole_replay", lambda *_: nullcontext(Mock()))
    monkeypatch.setattr(replay_module, "send_each", lambda _, found: sent.append(found) or {})
    selection = DeadLetterFilter(pipelines=frozenset({"p"}))
    if is_sent:
        assert replay_module.replay({}, "clicks", selection).sent == 40
    else:
        with pytest.raises(ReplayRefusedError, match="clicks"):
            replay_module.replay({}, "clicks", selection)
    assert len(sent) == is_sent


def ends(_, partitions):
    """Where logs end, and the epochs of their leaders."""
    return dict.fromkeys(partitions, (100, 0))


class Killed(BaseException):
    """The process was killed here."""


@pytest.mark.parametrize("steps", range(7))
def test_a_replay_that_is_killed_sends_again_to_the_same_readers_what_it_had_not_remembered(
    monkeypatch, steps
):
    letters = [
        replace(stored(offset=n), pipeline=name, position=(TopicPartition("clicks.dead", 0), n))
        for n, name in enumerate("pqp")
    ]
    left, sent, memory = [steps], [], []

    def step():
        left[0] -= 1
        if left[0] < 0:
            raise Killed

    def commit(offsets):
        step()
        memory[:] = offsets or memory
        step()

    def send(_, records):
        step()
        sent.extend((record.partition, record.headers) for record in records)
        step()
        return {}

    topics = {name: LiveTopic(name, "id", 3, 1) for name in ("clicks", "clicks.dead")}
    for name, value in {
        "scan": lambda *_: letters,
        "committed": lambda *_: memory,
        "offset_metadata_bytes": lambda _: 4096,
        "describe": lambda *_: topics,
        "latest_offsets": ends,
        "find_cuts": lambda *_: {},
        "opened_windows": lambda *_: [],
        "closed_windows": lambda *_: [],
        "sole_replay": lambda *_: nullcontext(SimpleNamespace(commit=commit)),
        "send_each": send,
    }.items():
        monkeypatch.setattr(replay_module, name, value)
    with pytest.raises(Killed) if steps < 6 else nullcontext():
        replay_module.replay({}, "clicks", DeadLetterFilter())
    first, left[0] = [*sent], 100
    replay_module.replay({}, "clicks", DeadLetterFilter())
    assert len(first) == (3 if steps > 2 else 0)
    assert sent == first + (sent[:3] if steps < 5 else [])
    assert replay_module.replay({}, "clicks", DeadLetterFilter()).sent == 0
