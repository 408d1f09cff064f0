"""Texts of exceptions are bounded, whatever the exception is."""

import logging
import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.workers.users_errors import ERRORS, FALSE_ERRORS, raised

from headrace.runtime.error_text import (
    MAX_CHARACTERS,
    bounded_text,
    error_message,
    error_text,
    exc_info,
)


def test_type_and_message_are_those_of_a_traceback():
    assert error_text(KeyError("campaign")) == "KeyError: 'campaign'"
    assert error_message(KeyError("campaign")) == "'campaign'"
    assert error_message(ValueError()) == "ValueError"


@pytest.mark.parametrize("make", ERRORS)
def test_an_error_of_any_kind_has_a_text(make):
    for text in (error_text(make()), error_message(make())):
        assert 0 < len(text) <= MAX_CHARACTERS


@given(st.text(), st.integers(0, 2 * MAX_CHARACTERS))
def test_a_text_is_kept_or_cut(character, length):
    written = (character * length)[: 3 * MAX_CHARACTERS]
    text = bounded_text(None, lambda: written)
    assert text == written if len(written) <= MAX_CHARACTERS else text == f"{text[:-1]}…"
    assert len(text) <= MAX_CHARACTERS
    assert written.startswith(text.removesuffix("…"))


@pytest.mark.parametrize("make", ERRORS)
def test_an_error_of_any_kind_is_logged_with_where_it_was_raised(make):
    [record] = logged(exc_info(raised(make)))
    text = logging.Formatter().format(record)
    assert "users_errors.py" in text
    assert len(text) < 10 * MAX_CHARACTERS


@pytest.mark.parametrize("make", [*FALSE_ERRORS[:2], OSError])
def test_an_error_that_can_be_formatted_is_logged_itself(make):
    error = make("away")
    error.__cause__ = LookupError("the cause")
    [record] = logged(exc_info(error))
    assert record.exc_info[:2] == (make, error)
    assert "".join(traceback.format_exception(error)).strip() in logging.Formatter().format(record)


def logged(taken):
    """Returns the records of a line that is logged with ``taken``."""
    records = []
    logger = logging.getLogger("headrace.test")
    logger.addFilter(records.append)
    logger.warning("It failed", exc_info=taken)
    logger.removeFilter(records.append)
    return records
