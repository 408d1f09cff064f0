from headrace.pipelines.source.state import Feedback, SharedState, SourceView


def test_nothing_is_paused_or_known_at_first(tmp_path):
    state = SharedState(tmp_path / "none")
    assert state.paused("t") == frozenset()
    assert state.feedback() == Feedback()
    assert state.view("t") == SourceView()


def test_a_pause_holds_until_it_is_replaced(tmp_path):
    state = SharedState(tmp_path)
    state.pause("t", frozenset({1, 3}))
    state.pause("u", frozenset({0}))
    assert SharedState(tmp_path).paused("t") == {1, 3}
    state.pause("t", frozenset())
    assert state.paused("t") == frozenset()
    assert state.paused("u") == {0}


def test_views_and_feedback_come_back_as_written(tmp_path):
    state = SharedState(tmp_path)
    view = SourceView({0: 5, 10: 7}, idle=(10,), paused=(0,), unreachable="no answer")
    state.write_view("t", view)
    assert state.view("t") == view
    feedback = Feedback({"t": 280.5}, {"t": 1_000_000})
    state.write_feedback(feedback)
    assert state.feedback() == feedback
