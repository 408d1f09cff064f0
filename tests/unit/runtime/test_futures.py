"""The result of a call on another thread is what it returned or raised, whatever that is."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.unit.workers.users_errors import FALSE_ERRORS

from headrace.cli.signals import beside_main_thread
from headrace.runtime.futures import result_of


@pytest.mark.parametrize("make", FALSE_ERRORS)
def test_an_error_that_is_false_is_raised(make):
    def fail():
        raise make

    with ThreadPoolExecutor(1) as thread, pytest.raises(make):
        result_of(thread.submit(fail))
    with pytest.raises(make):
        beside_main_thread(fail)


def test_what_a_call_returned_is_returned():
    with ThreadPoolExecutor(1) as thread:
        assert result_of(thread.submit(len, "abc")) == 3
