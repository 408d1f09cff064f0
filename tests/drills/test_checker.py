"""The checker finds every defect that is put into a clean history, and none in a clean one."""

import random
import zlib
from collections import defaultdict
from dataclasses import replace

import pytest
from tests.drills.checker import (
    Claim,
    Fault,
    History,
    Letter,
    Outcome,
    Poison,
    Processed,
    Snapshot,
    Stored,
    check,
    payload_of,
    repeats,
    repeats_of_committed,
    report,
    windows_of,
)

RECORDS = 700
PARTITIONS = 4
POISON = Poison("processing-failed", 2, "1")
BEGAN_MS = 1_800_000_000_000


def clean_history(seed: int, *, crash: bool = True) -> History:
    """Of a client that waits for answers now and then, and an instance that crashes once."""
    rng = random.Random(seed)
    claims, stored = sent(rng)
    poison = {one.id: POISON for one in stored if rng.random() < 0.02}
    processed, letters, commits = run(rng, stored, poison, crash=crash)
    ends = {one.partition: one.offset + 1 for one in stored}
    return History(
        claims,
        stored,
        processed,
        letters,
        commits,
        windows_of(stored, processed, letters),
        [Fault("crash", 0, claims[-1].answered_at, landed=True)],
        poison,
        ends,
        processed_once=not crash,
    )


def sent(rng):
    claims, stored, ends = [], [], defaultdict(int)
    now = 1
    for number in range(RECORDS):
        name, key = f"r-{number}", str(rng.randrange(40)).encode()
        outcome = rng.choices([*Outcome], [96, 2, 2])[0]
        now += 10
        answered = now + rng.choice([5, 25, 45])
        partition = zlib.crc32(key) % PARTITIONS
        offset = None
        if outcome is Outcome.ACKED or (outcome is Outcome.UNKNOWN and rng.random() < 0.5):
            offset = ends[partition]
            ends[partition] += rng.choice([1, 1, 1, 2])  # a transaction's marker
            at = BEGAN_MS + number * 100
            stored.append(Stored(partition, offset, name, key, payload_of(name), at))
        told = outcome is Outcome.ACKED and rng.random() < 0.9
        where = (partition, offset) if told else (None, None)
        claims.append(Claim(name, key, outcome, now, answered, *where))
    return claims, sorted(stored)


def run(rng, stored, poison, *, crash):
    """Each partition in its order; after the crash again from what was committed."""
    processed, letters, commits = [], [], []
    for partition in range(PARTITIONS):
        mine = [one for one in stored if one.partition == partition]
        at = 1_000_000 * (partition + 1)
        crash_at = rng.randrange(len(mine)) if crash else -1
        committed = position = 0
        while position < len(mine):
            one = mine[position]
            at += 7
            if one.id in poison:
                if one.position not in {letter.position for letter in letters}:
                    facts = Letter(*one.position, one.key, one.payload, *POISON)
                    letters.append(facts)
            else:
                crc = zlib.crc32(one.payload)
                processed.append(
                    Processed("a", *one.position, one.id, 1, int(one.key) % 8, crc, at)
                )
            position += 1
            if position == crash_at:
                position, crash_at = committed, -1
            elif rng.random() < 0.1 or position == len(mine):
                committed = position
                commits.append(Snapshot(partition, one.offset + 1, at + 1))
    return processed, letters, commits


@pytest.mark.parametrize("seed", range(20))
def test_a_clean_history_gives_no_finding(seed):
    history = clean_history(seed)
    assert check(history) == []
    assert repeats(history)
    assert repeats_of_committed(history) == []


def test_a_report_names_each_rule_that_is_broken_once_and_what_was_logged():
    clean = replace(clean_history(1), log="a-1: orders[0] lost")
    assert report(clean) == ""
    gone = {one.position for one in clean.stored[:40]}
    lost = replace(clean, processed=[one for one in clean.processed if one.position not in gone])
    first, *_, last = report(lost).splitlines()
    assert first.startswith("C1: 40 findings: ")
    assert len(first) < 500
    assert last == "a-1: orders[0] lost"


def test_a_history_without_a_crash_repeats_nothing():
    history = clean_history(1, crash=False)
    assert check(history) == []
    assert not repeats(history)


def without_record(rng, history, gone):
    """As if the broker had lost them."""
    return replace(
        history,
        stored=[one for one in history.stored if one.position not in gone],
        processed=[one for one in history.processed if one.position not in gone],
        letters=[one for one in history.letters if one.position not in gone],
        windows=windows_of(
            [one for one in history.stored if one.position not in gone],
            history.processed,
            history.letters,
        ),
    )


def acked(history):
    names = {one.id for one in history.claims if one.outcome is Outcome.ACKED}
    return [one for one in history.stored if one.id in names]


def first_done(history):
    done = {}
    for one in history.processed:
        done.setdefault(one.position, one.at)
    return done


def changed(rows, old, new):
    return [new if one == old else one for one in rows]


def drop_one(rng, history):
    return without_record(rng, history, {rng.choice(acked(history)).position})


def drop_a_tail(rng, history):
    tail = [one.position for one in acked(history) if one.partition == 2][-30:]
    return without_record(rng, history, set(tail))


def duplicate_one(rng, history):
    one = rng.choice(acked(history))
    offset = history.ends[one.partition] + 5
    stored = sorted([*history.stored, one._replace(offset=offset)])
    crc = zlib.crc32(one.payload)
    again = Processed("a", one.partition, offset, one.id, 1, 0, crc, 10**9)
    return replace(
        history,
        stored=stored,
        processed=[*history.processed, again],
        ends={**history.ends, one.partition: offset + 1},
        commits=[*history.commits, Snapshot(one.partition, offset + 1, 2 * 10**9)],
        windows=windows_of(stored, [*history.processed, again], history.letters),
    )


def chained(rng, history):
    """Two records of one key, the second sent after the first was acknowledged."""
    claims = {one.id: one for one in history.claims}
    there = acked(history)
    while True:
        first, second = sorted(rng.sample(there, 2), key=lambda one: claims[one.id].claimed_at)
        if first.key != second.key or {first.id, second.id} & set(history.poison):
            continue
        if claims[first.id].answered_at < claims[second.id].claimed_at:
            return first, second


def swap_two_of_a_key(rng, history):
    """Everywhere, so that nothing but the order is wrong."""
    first, second = chained(rng, history)
    names = {first.position: second, second.position: first}
    stored = [
        one._replace(id=names[one.position].id, payload=names[one.position].payload)
        if one.position in names
        else one
        for one in history.stored
    ]
    processed = [
        one._replace(id=names[one.position].id, crc=zlib.crc32(names[one.position].payload))
        if one.position in names
        else one
        for one in history.processed
    ]
    claims = [
        one._replace(partition=None, offset=None) if one.id in {first.id, second.id} else one
        for one in history.claims
    ]
    return replace(history, stored=stored, processed=processed, claims=claims)


def invent_one(rng, history):
    one = rng.choice(history.stored)
    return replace(history, claims=[claim for claim in history.claims if claim.id != one.id])


def flip_a_byte(rng, history):
    one = rng.choice(history.stored)
    flipped = bytearray(one.payload)
    flipped[rng.randrange(len(one.id) + 1, len(flipped))] ^= 1 << rng.randrange(8)
    poison = {name: what for name, what in history.poison.items() if name != one.id}
    letters = [letter for letter in history.letters if letter.position != one.position]
    return replace(
        history,
        stored=changed(history.stored, one, one._replace(payload=bytes(flipped))),
        poison=poison,
        letters=letters,
    )


def deliver_a_rejected_one(rng, history):
    one = rng.choice(acked(history))
    [claim] = [claim for claim in history.claims if claim.id == one.id]
    rejected = claim._replace(outcome=Outcome.REJECTED)
    return replace(history, claims=changed(history.claims, claim, rejected))


def shift_an_offset(rng, history):
    claim = rng.choice([one for one in history.claims if one.offset is not None])
    taken = {one.position for one in history.stored}
    following = next(
        offset
        for offset in range(claim.offset + 1, 10**6)
        if (claim.partition, offset) in taken or offset >= history.ends[claim.partition]
    )
    if following >= history.ends[claim.partition]:
        following = min(offset for partition, offset in taken if partition == claim.partition)
    shifted = claim._replace(offset=following)
    return replace(history, claims=changed(history.claims, claim, shifted))


def commit_one_ahead(rng, history):
    """To just after the first record that was not done then."""
    done = first_done(history)
    while True:
        one = rng.choice(history.commits)
        undone = [
            stored.offset
            for stored in history.stored
            if stored.partition == one.partition and done.get(stored.position, 0) > one.at
        ]
        if undone:
            ahead = one._replace(offset=min(undone) + 1)
            return replace(history, commits=changed(history.commits, one, ahead))


def lose_a_dead_letter(rng, history):
    """That its record was processed hides it from every other check."""
    letter = rng.choice(history.letters)
    [one] = [one for one in history.stored if one.position == letter.position]
    crc = zlib.crc32(one.payload)
    at = max(first for place, first in first_done(history).items() if place < one.position)
    done = Processed("a", *one.position, one.id, 1, 0, crc, at + 1)
    letters = [other for other in history.letters if other != letter]
    processed = [done, *history.processed]
    windows = windows_of(history.stored, processed, letters)
    return replace(history, letters=letters, processed=processed, windows=windows)


def miscount_a_window(rng, history):
    window = rng.choice(history.windows)
    name = rng.choice(["came", "out", "deduped", "filtered", "dead"])
    wrong = window._replace(**{name: getattr(window, name) + rng.choice([-1, 1])})
    return replace(history, windows=changed(history.windows, window, wrong))


def empty(rng, history):
    return History()


DEFECTS = {
    drop_one: "C1",
    drop_a_tail: "C1",
    duplicate_one: "C2",
    swap_two_of_a_key: "C7",
    invent_one: "C3",
    flip_a_byte: "C4",
    deliver_a_rejected_one: "C5",
    shift_an_offset: "C6",
    commit_one_ahead: "C8",
    lose_a_dead_letter: "C10",
    miscount_a_window: "C9",
    empty: "C12",
}


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda one: one.__name__)
@pytest.mark.parametrize("seed", range(5))
def test_a_defect_is_found(defect, seed):
    found = check(defect(random.Random(seed), clean_history(seed)))
    assert DEFECTS[defect] in {one.check for one in found}


WITH_OTHERS = {drop_one, drop_a_tail, flip_a_byte, deliver_a_rejected_one}
ALONE = [one for one in DEFECTS if one not in WITH_OTHERS]


@pytest.mark.parametrize("defect", ALONE, ids=lambda one: one.__name__)
def test_a_defect_of_one_kind_is_found_by_its_check_alone(defect):
    found = check(defect(random.Random(3), clean_history(3)))
    assert {one.check for one in found} == {DEFECTS[defect]}


def further(history):
    """Defects beside the twelve of the table, each with the check that must find it."""
    some = next(one for one in history.processed if one.offset > 10)
    letter = history.letters[0]
    later = [one for one in history.processed if one.position == some.position]
    rest = [one for one in history.processed if one.position != some.position]
    other = next(one for one in rest if one.partition == some.partition and one.lane == some.lane)
    return {
        "not processed": ("C1", replace(history, processed=rest)),
        "processed though it is not there": (
            "C3",
            replace(history, processed=[*history.processed, some._replace(offset=10**6)]),
        ),
        "processed other bytes": (
            "C4",
            replace(history, processed=[*rest, *(one._replace(crc=1) for one in later)]),
        ),
        "a letter twice": ("C10", replace(history, letters=[*history.letters, letter])),
        "a letter of other bytes": (
            "C10",
            replace(history, letters=[letter._replace(payload=b""), *history.letters[1:]]),
        ),
        "too few attempts": (
            "C10",
            replace(history, letters=[letter._replace(attempts=1), *history.letters[1:]]),
        ),
        "committed and back": (
            "C8",
            replace(history, commits=[*history.commits, history.commits[0]]),
        ),
        "not all committed": ("C11", replace(history, commits=history.commits[:-1])),
        "a fault without effect": (
            "C12",
            replace(history, faults=[history.faults[0]._replace(landed=False)]),
        ),
        "processed late": (
            "C7",
            replace(
                history,
                processed=[*rest, *(one._replace(at=10**12) for one in later)],
            ),
        ),
        "processed twice": ("C2", replace(history, processed_once=True)),
        "seen elsewhere": (
            "C6",
            replace(history, processed=[*history.processed, other._replace(id=some.id)]),
        ),
    }


@pytest.mark.parametrize("name", further(clean_history(0)))
def test_a_further_defect_is_found(name):
    wanted, history = further(clean_history(0))[name]
    assert wanted in {one.check for one in check(history)}


def test_a_repeat_of_what_was_committed_is_told_apart():
    history = clean_history(4)
    one = next(one for one in history.processed if one.offset == 0)
    again = one._replace(at=10**12)
    history = replace(history, processed=[*history.processed, again])
    assert repeats_of_committed(history) == [again]
