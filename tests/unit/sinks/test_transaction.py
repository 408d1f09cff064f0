import pytest

from headrace import SinkError, Transaction

BATCH = Transaction({"p": 8, "p/0": 100}, {"p": 7, "p/0": 50, "old": None})


def test_a_batch_follows_what_it_expects():
    assert BATCH.app_ids == {"p", "p/0", "old"}
    assert BATCH.follows({"p": 7, "p/0": 50}, "clicks")
    assert BATCH.follows({"p": 7, "p/0": 50, "old": None, "another": 1}, "clicks")
    assert Transaction({}, {}).follows({"p": 1}, "clicks")


def test_a_batch_that_is_recorded_follows_nothing():
    assert not BATCH.follows({"p": 8, "p/0": 100}, "clicks")


@pytest.mark.parametrize(
    "recorded",
    [{}, {"p": 8, "p/0": 50}, {"p": 7, "p/0": 50, "old": 1}, {"p": 9, "p/0": 100}],
)
def test_other_positions_are_an_error_of_the_target(recorded):
    with pytest.raises(SinkError, match="another driver has recorded other positions") as caught:
        BATCH.follows(recorded, "clicks")
    assert caught.value.sink == "clicks"
