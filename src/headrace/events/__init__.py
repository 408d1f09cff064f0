"""JSON events by their topic's schema: strict parsing, and why a record is rejected."""

from headrace.events.parsing.mistakes import BYTE_ORDER_MARK, known_mistake
from headrace.events.parsing.parser import LONG_RANGE, MILLIS_RANGE, event_parser, event_struct
from headrace.events.parsing.readable import ReadableCheck
from headrace.events.parsing.repeated_keys import parsed_again
from headrace.events.rejection import Rejection, out_of_bounds, rejection
from headrace.events.times import (
    EARLIEST_US,
    LATEST_US,
    iso_text,
    microseconds,
    parse_date,
    parse_time,
    readable_microseconds,
)

__all__ = [
    "BYTE_ORDER_MARK",
    "EARLIEST_US",
    "LATEST_US",
    "LONG_RANGE",
    "MILLIS_RANGE",
    "ReadableCheck",
    "Rejection",
    "event_parser",
    "event_struct",
    "iso_text",
    "known_mistake",
    "microseconds",
    "out_of_bounds",
    "parse_date",
    "parse_time",
    "parsed_again",
    "readable_microseconds",
    "rejection",
]
