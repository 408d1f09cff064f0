"""One JSON event by its topic's schema: strict parsing, and why a record is refused."""

from headrace.events.parser import LONG_RANGE, MILLIS_RANGE, event_parser, event_struct
from headrace.events.refusal import Why, refusal
from headrace.events.times import EARLIEST_US, LATEST_US, iso_text, microseconds, parse_time

__all__ = [
    "EARLIEST_US",
    "LATEST_US",
    "LONG_RANGE",
    "MILLIS_RANGE",
    "Why",
    "event_parser",
    "event_struct",
    "iso_text",
    "microseconds",
    "parse_time",
    "refusal",
]
