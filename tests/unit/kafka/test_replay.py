from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.kafka.dead_letters import StoredLetter
from headrace.kafka.replay import MOST_METADATA_BYTES, Selection, decode, encode
from headrace.model import DeadLetter, TopicPartition


@given(st.integers(0, 1 << 60), st.sets(st.integers(0, 50_000)))
def test_offsets_survive_as_text(first, steps):
    offsets = {first + step for step in steps}
    assert decode(first, encode(first, offsets)) == offsets


def test_a_hundred_thousand_replayed_in_long_runs_fit_beside_an_offset():
    offsets = [one for one in range(100_000) if one // 500 % 3]
    assert len(encode(0, offsets)) <= MOST_METADATA_BYTES


def stored(reason: str = "not-json", pipeline: str = "p", offset: int = 7) -> StoredLetter:
    letter = DeadLetter(TopicPartition("clicks", 2), offset, reason, "", None, None)
    return StoredLetter(letter, pipeline, "1", "", 0, (TopicPartition("clicks.dead", 0), 0), 0)


def test_a_selection_without_filters_holds_every_letter():
    assert stored() in Selection()


def test_a_letter_must_match_every_filter_given():
    chosen = Selection(frozenset({"not-json"}), frozenset({"p"}), frozenset({"clicks/2:7"}))
    assert stored() in chosen
    assert stored(reason="wrong-type") not in chosen
    assert stored(pipeline="q") not in chosen
    assert stored(offset=8) not in chosen
