"""The collector of cyclic garbage is off for a while, and then as it was."""

import gc

import pytest

from headrace.runtime.garbage import gc_paused


@pytest.fixture(params=[True, False])
def was_on(request):
    if not request.param:
        gc.disable()
    yield request.param
    gc.enable()


def failing():
    with gc_paused():
        assert not gc.isenabled()
        raise ValueError("inside")


def test_it_is_as_it_was_after_an_error(was_on):
    with pytest.raises(ValueError, match="inside"):
        failing()
    assert gc.isenabled() is was_on
