import pytest

from headrace.pipelines.late_data.event_clock import EventClock
from headrace.pipelines.source.planning.feedback import Feedback, RecordSizes
from headrace.pipelines.source.state import SourceState, SourceView


def test_nothing_is_paused_or_known_at_first(tmp_path):
    state = SourceState(tmp_path / "none")
    assert state.paused("t") == frozenset()
    assert state.feedback("1") == Feedback()
    assert state.view("t") == SourceView()


def test_a_pause_holds_until_it_is_replaced(tmp_path):
    state = SourceState(tmp_path)
    state.pause("t", frozenset({1, 3}))
    state.pause("u", frozenset({0}))
    assert SourceState(tmp_path).paused("t") == {1, 3}
    state.pause("t", frozenset())
    assert state.paused("t") == frozenset()
    assert state.paused("u") == {0}


def test_views_and_feedback_come_back_as_written(tmp_path):
    state = SourceState(tmp_path)
    view = SourceView({0: 5, 10: 7}, {0: 4, 10: 7}, idle=(10,), paused=(0,), unreachable="no")
    state.write_view("t", view)
    assert state.view("t") == view
    feedback = Feedback(
        {"t": {3: RecordSizes(2_800.0, 10.0, 280.0)}}, {"t": {3: EventClock(1_000_000, 999)}}
    )
    state.write_feedback("lake/p/1", 0, feedback, {})
    assert state.feedback("lake/p/1") == feedback


def test_a_batch_that_is_repeated_begins_with_the_feedback_before_it(tmp_path):
    """Else its events would be counted twice: one of a wrong clock would confirm itself."""
    state = SourceState(tmp_path)
    first, second = (Feedback(clocks={"t": {0: EventClock(n)}}) for n in (1, 2))
    state.write_feedback("lake/p/1", 0, first, {})
    for _ in range(2):
        assert state.feedback("lake/p/1", 1) == first
        state.write_feedback("lake/p/1", 1, second, {})
        assert state.feedback("lake/p/1") == second


def test_a_view_is_forgotten_before_another_planner_looks(tmp_path):
    state = SourceState(tmp_path)
    state.write_view("t", SourceView({0: 5}, {0: 4}))
    for _ in range(2):
        state.forget_view("t")
        assert state.view("t") == SourceView()


def test_a_new_checkpoint_knows_nothing_of_the_one_before(tmp_path):
    """Else a reset to older records would find every one of them late."""
    state = SourceState(tmp_path)
    state.write_feedback("lake/p/1", 0, Feedback(clocks={"t": {0: EventClock(1_000_000)}}), {})
    assert state.feedback("lake/p/2") == Feedback()


def test_torn_files_are_as_none_and_are_written_anew(tmp_path):
    state = SourceState(tmp_path)
    feedback, view = Feedback(clocks={"t": {0: EventClock(1_000_000)}}), SourceView({0: 5})
    for _ in range(2):
        for name in ("feedback", "paused", "view-t"):
            (tmp_path / f"{name}.json").write_bytes(b"")
        assert (state.feedback("lake/p/1"), state.paused("t"), state.view("t")) == (
            Feedback(),
            frozenset(),
            SourceView(),
        )
        state.write_feedback("lake/p/1", 0, feedback, {})
        state.pause("t", frozenset({1}))
        state.write_view("t", view)
        assert (state.feedback("lake/p/1"), state.paused("t"), state.view("t")) == (
            feedback,
            {1},
            view,
        )


def test_a_batch_does_not_fail_of_what_it_cannot_tell_but_a_pause_does(tmp_path):
    (tmp_path / "p").write_text("in the way")
    state = SourceState(tmp_path / "p")
    state.write_feedback("lake/p/1", 0, Feedback(), {})
    state.write_view("t", SourceView())
    with pytest.raises(OSError, match="p"):
        state.pause("t", frozenset({1}))


@pytest.mark.parametrize(
    ("ends", "is_known"),
    [
        ({1: {"t": {0: 20}}, 0: {"t": {0: 10}}}, True),
        ({2: {"t": {0: 30}}, 1: {"t": {0: 20}}}, True),
        ({1: {"t": {0: 15}}, 0: {"t": {0: 10}}}, False),
        ({0: {"t": {0: 10}}, -1: {"t": {0: 0}}}, False),
        ({}, False),
    ],
    ids=["the last one", "the one before", "other offsets", "an older one", "none"],
)
def test_clocks_of_a_batch_that_the_checkpoint_does_not_have_are_forgotten(
    tmp_path, ends, is_known
):
    """It was restored: by clocks of newer records, those that are read again would be late."""
    state, uri = SourceState(tmp_path), "lake/p/1"
    sizes, clocks = {"t": {0: RecordSizes(10.0, 1.0, 10.0)}}, {"t": {0: EventClock(5, 4)}}
    state.write_feedback(uri, 0, Feedback(sizes), {"t": {0: 10}})
    state.write_feedback(uri, 1, Feedback(sizes, clocks), {"t": {0: 20}})
    state.forget_clocks_of_another_history(uri, ends)
    assert state.feedback(uri) == Feedback(sizes, clocks if is_known else {})
    state.forget_clocks_of_another_history("lake/p/2", {})
    assert state.feedback(uri).sizes == sizes
