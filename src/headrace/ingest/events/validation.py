"""Events of one topic: strictly what it declares, or a reason."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any, NamedTuple

import msgspec

from headrace.events import (
    ReadableCheck,
    Rejection,
    event_parser,
    out_of_bounds,
    parse_time,
    rejection,
)
from headrace.events.written import WrittenWith, event_writer
from headrace.ingest.events.fast_path import FastPathReader
from headrace.ingest.events.json_limits import JsonLimits, JsonLimitsCheck
from headrace.ingest.http.problem import ProblemDetails
from headrace.model import (
    AppliedSpreads,
    ByKey,
    EventField,
    FieldType,
    Topic,
    partition_of,
    value_at,
)

BROKER_MESSAGE_BYTES = 1_048_588  # Kafka's default of max.message.bytes
MAX_ID_CHARACTERS = 256
MAX_KEY_BYTES = 1024
_BATCH_BYTES = 128  # what Kafka adds to a batch of one record, without its headers: 61 and some
_HEADER_BYTES = 10  # what Kafka adds to a header
_document: Callable[[bytes], dict[str, Any]] = msgspec.json.Decoder().decode
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = datetime.max.replace(tzinfo=UTC)
_TOO_LARGE = "event-too-large"

Clock = Callable[[], float]
"""Seconds since 1970."""


class Accepted(msgspec.Struct, frozen=True, gc=False):
    """An event that may be sent.

    Attributes:
        value: of its record: the JSON text as it came, plus its id where that was derived; of a
            registered format what is written for that.
        key: record key.
        event_id: empty where the topic declares none.
        partition: where it goes; -1 where the producer places it by its key.
    """

    value: bytes
    key: bytes
    event_id: str
    partition: int


class Verdicts(NamedTuple):
    """The verdicts on a request's events: those accepted, in their order; and the problems."""

    accepted: list[Accepted]
    rejected: list[ProblemDetails]

    def late_problems(self, reasons: Mapping[bytes, str]) -> list[ProblemDetails]:
        """A problem for each accepted event that Kafka will never take, by the events' values."""
        rejected_numbers = {problem.index for problem in self.rejected}
        count = len(self.accepted) + len(self.rejected)
        numbers = [number for number in range(count) if number not in rejected_numbers]
        return [
            ProblemDetails(
                HTTPStatus.UNPROCESSABLE_ENTITY,
                "rejected-by-kafka",
                f"Kafka will never take the event: {reasons[event.value]}; do not send it again",
                number,
            )
            for number, event in zip(numbers, self.accepted, strict=True)
            if event.value in reasons
        ]

    def without(self, reasons: Mapping[bytes, str], late: list[ProblemDetails]) -> Verdicts:
        """The other accepted events, and all problems in the order of the events."""
        accepted = [event for event in self.accepted if event.value not in reasons]
        return Verdicts(
            accepted, sorted([*self.rejected, *late], key=lambda problem: problem.index or 0)
        )


Headers = Sequence[tuple[str, bytes]]
"""Of the records that the events become."""


class EventCheck:
    r"""Checks the events of one topic. The reasons are those of the pipelines' decoder, and more.

    ======================== ===================================================================
    repeated-key             a key stands twice in an object (parsers would take the last)
    too-many-keys            in all its objects together
    text-too-long            a string
    nul-character            ``\u0000`` in a text, which databases reject
    event-time-out-of-bounds outside what the topic declares
    bad-event-id             missing, empty, too long, or not printable ASCII
    repeated-event-id        an id that another event of the same request has
    bad-key                  the key field is null, empty or too long
    event-too-large          with key and headers, beyond the topic's ``max.message.bytes``
    ======================== ===================================================================

    Most events are accepted by the fast path; all others, valid or not, are checked again by steps
    that find the reason.
    """

    def __init__(
        self,
        topic: Topic,
        limits: JsonLimits,
        clock: Clock,
        written: WrittenWith | None = None,
        applied: AppliedSpreads | None = None,
    ) -> None:
        """Events of a registered format are written ``written`` with its schema.

        ``applied`` are the spreads of a topic that takes them.
        """
        if topic.schema is None:
            raise ValueError(f"topic {topic.name!r} carries raw bytes")
        self._encode = event_writer(topic, written)
        self._topic, self._schema = topic, topic.schema
        self._plain = FastPathReader(topic.schema, limits, topic.event_time)
        self._id_slot = self._plain.slots.get(topic.event_id or "")
        self._time_slot = self._plain.slots.get(topic.event_time or "", "")
        self._key_slot = self._plain.slots.get(topic.key or "")
        self._structure = JsonLimitsCheck(limits)
        self._parse = event_parser(topic.schema)
        self._bounds = (
            _TimeBounds(topic, topic.schema.field(topic.event_time), clock)
            if topic.event_time
            else None
        )
        self._is_readable = ReadableCheck(topic.schema, but=topic.event_time)
        by_key = isinstance(topic.partitioning, ByKey)
        self._place = (
            None if by_key else partition_of(topic.partitioning, topic.partitions, applied)
        )
        self._most_bytes = largest_message(topic) - _BATCH_BYTES

    def batch(self, events: list[bytes], account: str, headers: Headers) -> Verdicts:
        """The good events in their order, and a problem for each of the others. On any thread.

        Raises:
            SpreadsUnknownError: if it is not known which spreads count for one of them.
        """
        accepted: list[Accepted] = []
        rejected: list[ProblemDetails] = []
        seen: set[str] = set()
        # Headers count as Kafka counts them, and a few bytes more.
        header_bytes = sum([len(name) + len(value) + _HEADER_BYTES for name, value in headers])
        most_bytes = self._most_bytes - header_bytes
        surely_bytes = most_bytes - max(MAX_KEY_BYTES, len(account.encode()))
        if self._bounds is not None:
            self._bounds.renew()
        for index, text in enumerate(events):
            # No key makes an event of so few bytes too large.
            verdict: Accepted | Rejection | None = (
                self._at_first_sight(text, account) if len(text) <= surely_bytes else None
            )
            if verdict is None:
                verdict = self._verdict(text, account, most_bytes)
            if isinstance(verdict, Accepted):
                verdict = self._encoded(verdict, most_bytes)
            if isinstance(verdict, Accepted) and verdict.event_id in seen:
                detail = f"an event before it in this request has the id {verdict.event_id!r} too"
                verdict = "repeated-event-id", detail
            if isinstance(verdict, Accepted):
                accepted.append(verdict)
                if verdict.event_id:
                    seen.add(verdict.event_id)
            else:
                rejected.append(_problem(verdict, index))
        return Verdicts(accepted, rejected)

    def _encoded(self, event: Accepted, most_bytes: int) -> Accepted | Rejection:
        if self._encode is None:
            return event
        value = self._encode(event.value)
        # Eight bytes of a double can be one digit of JSON, so what is written may be larger.
        if len(value) > most_bytes - len(event.key):
            return _too_large(len(value), most_bytes - len(event.key))
        return msgspec.structs.replace(event, value=value)

    def _at_first_sight(self, text: bytes, account: str) -> Accepted | None:
        event = self._plain(text)
        # ``None`` rejects nothing: the slow path then says what is wrong, if anything is.
        if event is None:
            return None
        event_id = getattr(event, self._id_slot) if self._id_slot else ""
        if self._id_slot and not _is_id(event_id):
            return None
        bounds = self._bounds
        if bounds is not None and not bounds.hold(getattr(event, self._time_slot)):
            return None
        key = _plain_key(getattr(event, self._key_slot)) if self._key_slot else account.encode()
        if key is None:
            return None
        partition = -1 if self._place is None else self._partition(_document(text), account)
        return Accepted(text, key, event_id, partition)

    def _verdict(self, text: bytes, account: str, most_bytes: int) -> Accepted | Rejection:
        if len(text) > most_bytes:
            return _too_large(len(text), most_bytes)
        try:
            document, why = self._structure(text)
            if why is not None:
                return why
            if self._topic.derive_event_id:
                text = self._with_id(text, document, account)
            event = self._parse(text)
        except (ValueError, TypeError, RecursionError) as error:
            return rejection(text, self._schema, error)
        if not self._is_readable(event):
            return rejection(text, self._schema)
        verdict = self._declared(text, document, account)
        if isinstance(verdict, Accepted):
            most_bytes -= len(verdict.key)
            if len(verdict.value) > most_bytes:
                return _too_large(len(verdict.value), most_bytes)
        return verdict

    def _declared(
        self, text: bytes, document: dict[str, Any], account: str
    ) -> Accepted | Rejection:
        # One mistake is named: of the id, of the time, then of the key.
        event_id = value_at(document, self._topic.event_id) if self._topic.event_id else ""
        if self._topic.event_id and not _is_id(event_id):
            return _bad_id(self._topic.event_id, event_id)
        if self._bounds is not None:
            time = self._bounds.time(document)
            if time is None:
                return rejection(text, self._schema)
            if not self._bounds.hold(time):
                return self._bounds.rejection(time)
        partition = self._partition(document, account)
        if self._topic.key is None:
            return Accepted(text, account.encode(), event_id, partition)
        key = value_at(document, self._topic.key)
        encoded = b"" if key is None else str(key).encode()
        if not 0 < len(encoded) <= MAX_KEY_BYTES:
            what = "is null or empty" if not encoded else f"is {len(encoded)} bytes long"
            expected = f"expected 1 to {MAX_KEY_BYTES} bytes as the key"
            return "bad-key", f"field {self._topic.key!r} {what}, {expected}"
        return Accepted(text, encoded, event_id, partition)

    def _partition(self, document: dict[str, Any], account: str) -> int:
        if self._place is None:
            return -1
        time = None if self._bounds is None else self._bounds.time(document)
        return self._place(document, account, time or _EPOCH)

    def _with_id(self, text: bytes, document: Any, account: str) -> bytes:
        """Returns the event with an id; the same bytes of one account always get the same id."""
        name = self._topic.event_id
        if name is None or not isinstance(document, dict) or document.get(name) is not None:
            return text
        if name in document:
            return text
        event_id = derived_id(self._topic.name, account, text)
        member = json.dumps(name) + ":" + json.dumps(event_id)
        rest = text[1:] if document else b"}"
        document[name] = event_id
        comma = "," if len(document) > 1 else ""
        return b"{" + member.encode() + comma.encode() + rest


def largest_message(topic: Topic) -> int:
    """Returns the bytes of a batch of records that the topic takes."""
    return int(topic.config.get("max.message.bytes", BROKER_MESSAGE_BYTES))


def derived_id(topic: str, account: str, text: bytes) -> str:
    """A UUID (version 8) of the topic, the account and the event's bytes, by BLAKE2b."""
    digest = hashlib.blake2b(digest_size=16, person=b"headrace-eventid")
    for part in (topic.encode(), account.encode(), text):
        digest.update(len(part).to_bytes(8, "big") + part)
    number = int.from_bytes(digest.digest(), "big")
    return str(uuid.UUID(int=number & ~(0xF << 76) & ~(0x3 << 62) | 8 << 76 | 2 << 62))


def _is_id(value: Any) -> bool:
    """Printable ASCII without spaces."""
    return (
        type(value) is str
        and 0 < len(value) <= MAX_ID_CHARACTERS
        and value.isascii()
        and value.isprintable()
        and " " not in value
    )


def _plain_key(value: Any) -> bytes | None:
    """The key of a text or an integer; other values are written in more than one way."""
    if type(value) is not str and type(value) is not int:
        return None
    encoded = str(value).encode()
    return encoded if 0 < len(encoded) <= MAX_KEY_BYTES else None


class _TimeBounds:
    def __init__(self, topic: Topic, field: EventField, clock: Clock) -> None:
        self._field, self._clock = field.name, clock
        self._read = _from_millis if field.type is FieldType.MILLIS else parse_time
        self._earliest, self._ahead = topic.earliest_event_time, topic.latest_ahead
        self._latest = self._earliest

    def renew(self) -> None:
        """Reads the clock: once for all events of a request."""
        now = datetime.fromtimestamp(self._clock(), UTC)
        # A topic without a bound declares timedelta.max, and there is no time so late.
        self._latest = now + self._ahead if self._ahead < _LATEST - now else _LATEST

    def hold(self, time: datetime | int) -> bool:
        """Returns whether a time that was read, or milliseconds, is within the bounds."""
        when = _from_millis(time) if isinstance(time, int) else time
        return self._earliest <= when <= self._latest

    def time(self, document: dict[str, Any]) -> datetime | None:
        """Returns the event time of a document; ``None`` if its text is no time."""
        return self._read(document[self._field])

    def rejection(self, time: datetime) -> Rejection:
        """The rejection of a time outside the bounds."""
        limits = _micros(self._earliest), _micros(self._latest)
        return out_of_bounds(self._field, _micros(time), *limits)


def _from_millis(millis: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=millis)


def _micros(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(microseconds=1)


def _problem(why: Rejection, index: int) -> ProblemDetails:
    code, detail = why
    too_large = code == _TOO_LARGE
    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE if too_large else HTTPStatus.BAD_REQUEST
    return ProblemDetails(status, code, detail, index)


def _too_large(size: int, most: int) -> Rejection:
    limit = f"at most {most} beside its key and headers (max.message.bytes of the topic)"
    return _TOO_LARGE, f"the event is {size} bytes, expected {limit}"


def _bad_id(name: str, value: object) -> Rejection:
    what = "is missing or empty" if not value else f"is {str(value)[:40]!r}"
    return (
        "bad-event-id",
        f"field {name!r} {what}, expected 1 to {MAX_ID_CHARACTERS} printable ASCII characters",
    )
