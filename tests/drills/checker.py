"""What a drill's history must look like: a pure function from a history to its findings.

=== ============================================================================================
C1  every acknowledged record is in the topic, and every one there was processed or is a letter
C2  every id is in the topic once; where a drill says so, every record was processed once
C3  nothing is there that nobody sent
C4  what is there is, byte for byte, what was sent
C5  nothing is there that was rejected
C6  a position has one id, wherever it is seen
C7  records of a key, each sent after the one before was acknowledged, keep their order
C8  a committed offset never passes a record that is not done, and never goes back
C9  each window of ten seconds: in = out + deduped + filtered + dead letters
C10 every poison record is a dead letter once, with its bytes, reason, attempts and version
C11 in the end everything is committed
C12 the faults took place, and records were acknowledged and processed meanwhile
=== ============================================================================================

All ``at`` are nanoseconds of the machine's monotonic clock, which its processes share.
"""

from __future__ import annotations

import enum
import hashlib
import itertools
import zlib
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

WINDOW_MS = 10_000
MIN_ACKED = 100
_NEVER = 2**63
_FIRST = 3

Position = tuple[int, int]
"""Partition and offset."""


class Outcome(enum.StrEnum):
    """What the client was told; ``unknown``: it may be there or not."""

    ACKED = "acked"
    REJECTED = "rejected"
    UNKNOWN = "unknown"


class Claim(NamedTuple):
    """A record that a client set out to send. ``offset`` may be missing from an answer."""

    id: str
    key: bytes
    outcome: Outcome
    claimed_at: int
    answered_at: int
    partition: int | None = None
    offset: int | None = None


class Stored(NamedTuple):
    """A record in the topic."""

    partition: int
    offset: int
    id: str
    key: bytes
    payload: bytes
    timestamp_ms: int

    @property
    def position(self) -> Position:
        return self.partition, self.offset


class Processed(NamedTuple):
    """An instance did a record; ``crc`` is of the value that it saw."""

    instance: str
    partition: int
    offset: int
    id: str
    attempt: int
    lane: int
    crc: int
    at: int

    @property
    def position(self) -> Position:
        return self.partition, self.offset


class Letter(NamedTuple):
    """A dead letter, with the position of the original."""

    partition: int
    offset: int
    key: bytes
    payload: bytes
    reason: str
    attempts: int
    version: str

    @property
    def position(self) -> Position:
        return self.partition, self.offset


class Snapshot(NamedTuple):
    """A committed offset, asked for in the order of a history and known at ``at``."""

    partition: int
    offset: int
    at: int


Row = TypeVar("Row", Stored, Processed, Snapshot)


class Window(NamedTuple):
    """Counters of ten seconds of event time, which begin at ``start_ms``."""

    start_ms: int
    came: int
    out: int
    deduped: int
    filtered: int
    dead: int


class Poison(NamedTuple):
    """What the dead letter of a record must say."""

    reason: str
    attempts: int
    version: str


class Fault(NamedTuple):
    """Something that was done to the system, and whether it was seen to take effect."""

    name: str
    began_at: int
    healed_at: int
    landed: bool


@dataclass(frozen=True)
class History:
    """Everything that was seen from outside.

    Attributes:
        claims: of all clients, by ``claimed_at``.
        stored: the topic, by partition and offset.
        poison: by id, what must end as a dead letter.
        ends: by partition, the offset after its last record.
        processed_once: no instance may have repeated anything.
        least_acked: of records, while faults were there.
        log: what the instances logged of their partitions, for who reads findings.
    """

    claims: Sequence[Claim] = ()
    stored: Sequence[Stored] = ()
    processed: Sequence[Processed] = ()
    letters: Sequence[Letter] = ()
    commits: Sequence[Snapshot] = ()
    windows: Sequence[Window] = ()
    faults: Sequence[Fault] = ()
    poison: Mapping[str, Poison] = field(default_factory=dict)
    ends: Mapping[int, int] = field(default_factory=dict)
    processed_once: bool = False
    least_acked: int = MIN_ACKED
    log: str = ""


class Finding(NamedTuple):
    """What is wrong; ``check`` is its name in the table above."""

    check: str
    detail: str


def payload_of(name: str) -> bytes:
    """The value of the record with that id: its id, and bytes that follow from it."""
    digest = hashlib.sha256(name.encode()).digest()
    return name.encode() + b" " + digest + hashlib.sha256(digest).digest()


def id_of(payload: bytes) -> str:
    """The id that a value begins with."""
    return payload.partition(b" ")[0].decode(errors="replace")


def check(history: History) -> list[Finding]:
    """Everything that is wrong with ``history``."""
    return [Finding(name, detail) for name, rule in RULES.items() for detail in rule(history)]


def report(history: History) -> str:
    """Empty if nothing is wrong; else a few findings of each rule, and what was logged."""
    found = [
        f"{name}: {len(details)} findings: {', '.join(details[:_FIRST])}, ..., {details[-1]}"
        for name, rule in RULES.items()
        if (details := list(rule(history)))
    ]
    return "\n".join([*found, history.log]) if found else ""


def repeats(history: History) -> Counter[Position]:
    """How often each record was processed again."""
    seen = Counter(one.position for one in history.processed)
    return Counter({position: count - 1 for position, count in seen.items() if count > 1})


def repeats_of_committed(history: History) -> list[Processed]:
    """What was processed again though a commit had passed it: none, unless by a zombie."""
    found = []
    for partition, done in _by_partition(history.processed).items():
        commits = _by_partition(history.commits)[partition]
        at = [one.at for one in commits]
        firsts: set[int] = set()
        for one in sorted(done, key=lambda done: done.at):
            known = bisect_left(at, one.at)
            if one.offset in firsts and known and one.offset < commits[known - 1].offset:
                found.append(one)
            firsts.add(one.offset)
    return found


def windows_of(
    stored: Iterable[Stored], processed: Iterable[Processed], letters: Iterable[Letter]
) -> list[Window]:
    """Counters of a topic, of which all records are to be processed or dead letters."""
    done = {one.position for one in processed}
    dead = {one.position for one in letters}
    counters: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
    for one in stored:
        window = counters[_window(one)]
        window[0] += 1
        window[1] += one.position in done and one.position not in dead
        window[2] += one.position in dead
    return [
        Window(start, came, out, 0, 0, gone)
        for start, (came, out, gone) in sorted(counters.items())
    ]


def _lost(history: History) -> Iterator[str]:
    there = {one.id for one in history.stored}
    for claim in history.claims:
        if claim.outcome is Outcome.ACKED and claim.id not in there:
            where = claim.partition, claim.offset
            yield f"{claim.id} was acknowledged at {where} and is not in the topic"
    done = {one.position for one in history.processed} | {one.position for one in history.letters}
    for one in history.stored:
        if one.position not in done:
            yield f"{one.id} at {one.position} was neither processed nor is it a dead letter"


def _twice(history: History) -> Iterator[str]:
    for name, count in Counter(one.id for one in history.stored).items():
        if count > 1:
            yield f"{name} is in the topic {count} times"
    if history.processed_once:
        for position, count in repeats(history).items():
            yield f"{position} was processed {count + 1} times"


def _invented(history: History) -> Iterator[str]:
    claimed = {one.id for one in history.claims}
    for one in history.stored:
        if one.id not in claimed:
            yield f"{one.id} at {one.position} was sent by nobody"
    there = {one.position for one in history.stored}
    for done in (*history.processed, *history.letters):
        if done.position not in there:
            yield f"{done.position} is not in the topic and was processed"


def _corrupted(history: History) -> Iterator[str]:
    for one in history.stored:
        if one.payload != payload_of(one.id):
            yield f"{one.id} at {one.position} is not what was sent"
    crcs = {one.id: zlib.crc32(payload_of(one.id)) for one in history.stored}
    for done in history.processed:
        if done.crc != crcs.get(done.id, done.crc):
            yield f"{done.instance} saw other bytes of {done.id}"


def _rejected(history: History) -> Iterator[str]:
    rejected = {one.id for one in history.claims if one.outcome is Outcome.REJECTED}
    for one in (*history.stored, *history.processed):
        if one.id in rejected:
            yield f"{one.id} was rejected and is at {one.position}"


def _misplaced(history: History) -> Iterator[str]:
    ids: defaultdict[Position, set[str]] = defaultdict(set)
    for one in (*history.stored, *history.processed):
        ids[one.position].add(one.id)
    for claim in history.claims:
        if claim.partition is not None and claim.offset is not None:
            ids[claim.partition, claim.offset].add(claim.id)
    for position, names in ids.items():
        if len(names) > 1:
            yield f"{position} holds {', '.join(sorted(names))}"


def _disordered(history: History) -> Iterator[str]:
    yield from _sent_out_of_order(history)
    yield from _processed_out_of_order(history)


def _sent_out_of_order(history: History) -> Iterator[str]:
    """Of one key and partition: a key may move when partitions are added."""
    first: dict[str, Position] = {}
    for one in history.stored:
        first.setdefault(one.id, one.position)
    chains: defaultdict[tuple[bytes, int], list[tuple[Claim, int]]] = defaultdict(list)
    for claim in history.claims:
        if claim.outcome is Outcome.ACKED and claim.id in first:
            partition, offset = first[claim.id]
            chains[claim.key, partition].append((claim, offset))
    for chain in chains.values():
        yield from _against_answers(chain)


def _against_answers(chain: list[tuple[Claim, int]]) -> Iterator[str]:
    answered = iter(sorted(chain, key=lambda one: one[0].answered_at))
    before = next(answered, None)
    furthest = -1
    for claim, offset in sorted(chain, key=lambda one: one[0].claimed_at):
        while before is not None and before[0].answered_at < claim.claimed_at:
            furthest = max(furthest, before[1])
            before = next(answered, None)
        if offset < furthest:
            yield f"{claim.id} of key {claim.key!r} is before one that was sent earlier"


def _processed_out_of_order(history: History) -> Iterator[str]:
    keys = {one.position: one.key for one in history.stored}
    furthest: dict[tuple[int, bytes], int] = {}
    seen: set[Position] = set()
    for one in sorted(history.processed, key=lambda done: done.at):
        if one.position in seen or one.position not in keys:
            continue
        seen.add(one.position)
        lane = one.partition, keys[one.position]
        if one.offset < furthest.get(lane, -1):
            yield f"{one.id} at {one.position} was processed after a later one of its key"
        furthest[lane] = max(furthest.get(lane, -1), one.offset)


def _committed_ahead(history: History) -> Iterator[str]:
    done = _first_done(history)
    stored = _by_partition(history.stored)
    for partition, commits in _by_partition(history.commits).items():
        offsets = sorted(one.offset for one in stored[partition])
        latest = list(
            itertools.accumulate((done.get((partition, one), _NEVER) for one in offsets), max)
        )
        end = offsets[-1] + 1 if offsets else 0
        for before, now in itertools.pairwise([Snapshot(partition, 0, 0), *commits]):
            if now.offset < before.offset:
                yield f"partition {partition} went back from {before.offset} to {now.offset}"
            passed = bisect_left(offsets, now.offset)
            if now.offset > end or (passed and latest[passed - 1] > now.at):
                yield f"partition {partition} was committed at {now.offset}, with some undone"


def _first_done(history: History) -> dict[Position, int]:
    """When each record was done; dead letters have no time of this machine's."""
    done: dict[Position, int] = {one.position: 0 for one in history.letters}
    for one in history.processed:
        done[one.position] = min(one.at, done.get(one.position, _NEVER))
    return done


def _miscounted(history: History) -> Iterator[str]:
    there = Counter(_window(one) for one in history.stored)
    for window in history.windows:
        came = there.pop(window.start_ms, 0)
        if not came == window.came == window.out + window.deduped + window.filtered + window.dead:
            yield f"{window}, and {came} are in the topic"
    for start, count in there.items():
        yield f"the window at {start} is missing, and {count} are in the topic"


def _poison(history: History) -> Iterator[str]:
    letters: defaultdict[Position, list[Letter]] = defaultdict(list)
    for one in history.letters:
        letters[one.position].append(one)
    for one in history.stored:
        if one.id in history.poison:
            found = letters.pop(one.position, [])
            wanted = Letter(*one.position, one.key, one.payload, *history.poison[one.id])
            if found != [wanted]:
                yield f"{one.id} at {one.position} is {found} as dead letters"
    for position in letters:
        yield f"{position} is a dead letter and was sound"


def _left_over(history: History) -> Iterator[str]:
    committed = {one.partition: one.offset for one in history.commits}
    for partition, end in history.ends.items():
        if end and committed.get(partition, 0) != end:
            yield f"partition {partition} ends at {end}, committed is {committed.get(partition)}"


def _uncovered(history: History) -> Iterator[str]:
    for fault in history.faults:
        if not fault.landed:
            yield f"{fault.name} had no effect"
    for name in ("claims", "stored", "processed", "commits", "faults"):
        if not getattr(history, name):
            yield f"no {name}"
    acked = sum(_while_faulty(history, one) for one in history.claims)
    if acked < history.least_acked:
        yield f"{acked} records were acknowledged during faults"


def _while_faulty(history: History, claim: Claim) -> bool:
    return claim.outcome is Outcome.ACKED and any(
        one.began_at <= claim.answered_at <= one.healed_at for one in history.faults
    )


def _window(one: Stored) -> int:
    return one.timestamp_ms // WINDOW_MS * WINDOW_MS


def _by_partition(rows: Iterable[Row]) -> defaultdict[int, list[Row]]:
    found: defaultdict[int, list[Row]] = defaultdict(list)
    for one in rows:
        found[one.partition].append(one)
    return found


RULES: Mapping[str, Callable[[History], Iterator[str]]] = {
    "C1": _lost,
    "C2": _twice,
    "C3": _invented,
    "C4": _corrupted,
    "C5": _rejected,
    "C6": _misplaced,
    "C7": _disordered,
    "C8": _committed_ahead,
    "C9": _miscounted,
    "C10": _poison,
    "C11": _left_over,
    "C12": _uncovered,
}
