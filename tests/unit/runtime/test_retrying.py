from itertools import islice

import pytest

from headrace.runtime.retrying import exponential_backoff, retry


class Calls:
    """Raises each of ``errors``, one a call, and then returns how many calls there were."""

    def __init__(self, *errors):
        self.errors, self.count = list(errors), 0

    def __call__(self):
        self.count += 1
        if self.errors:
            raise self.errors.pop(0)
        return self.count


def test_a_call_is_repeated_after_transient_errors():
    assert retry(Calls(), OSError, ()) == 1
    assert retry(Calls(OSError(), KeyError(), OSError()), (OSError, KeyError), [0, 0, 0]) == 4


def test_the_last_error_is_raised_where_no_delay_is_left():
    calls = Calls(OSError("first"), OSError("second"), OSError("third"))
    with pytest.raises(OSError, match="second"):
        retry(calls, OSError, [0])
    assert calls.count == 2


def test_other_errors_are_raised_at_once():
    calls = Calls(OSError(), ValueError("wrong"))
    with pytest.raises(ValueError, match="wrong"):
        retry(calls, OSError, [0, 0, 0])
    assert calls.count == 2


def test_no_call_begins_after_the_time():
    calls = Calls(OSError("first"))
    with pytest.raises(OSError, match="first"):
        retry(calls, OSError, exponential_backoff(60, 60), max_seconds=20)
    assert calls.count == 1


def test_delays_are_doubled_up_to_the_longest():
    delays = exponential_backoff(1, 6, rand=lambda: 0.0)
    assert list(islice(delays, 5)) == [1, 2, 4, 6, 6]


def test_each_delay_is_shortened_at_random_and_the_next_is_twice_the_whole_one():
    delays = exponential_backoff(1, 6, rand=iter([0.5, 1.0, 0.0, 0.25, 0.0]).__next__)
    assert list(islice(delays, 5)) == [0.75, 1, 4, 5.25, 6]
