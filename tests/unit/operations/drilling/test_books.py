"""What counts as lost and as repeated, by the ids that records have."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest

from headrace import Guarantee, Topic, Worker
from headrace.ledger.balance import Balance
from headrace.ledger.windows import WindowState
from headrace.operations.drilling.books import MAX_NAMED, worker_book, writing_book
from headrace.operations.drilling.events import EventName

CLICKS = Topic("clicks")
PERIOD = 5
EVENTS = SimpleNamespace(number=0, topic=CLICKS, period=PERIOD)
SENT = [EventName(0, number) for number in range(10 * PERIOD)]


def compared(arrivals, guarantee=Guarantee.AT_LEAST_ONCE):
    worker = Worker("enrich", CLICKS, object, guarantee=guarantee)
    book = worker_book(EVENTS, [worker], SENT, arrivals, {"clicks"})
    return book, Balance.of(book)


def test_events_that_are_there_once_balance():
    book, balance = compared({"clicks": Counter(SENT), "enriched": Counter(SENT)})
    [sent] = book.sent
    assert (sent.topic, sent.in_topic) == ("enriched", len(SENT))
    assert not balance.is_unbalanced
    assert not balance.is_unknown


def test_what_is_missing_is_lost_where_others_of_the_same_event_are_there():
    there = Counter(SENT)
    missing = SENT[7::11]
    for name in missing:
        del there[name]
    book, balance = compared({"enriched": there})
    assert balance.is_unbalanced
    assert book.sent[0].lost_ids == tuple(map(str, missing))
    [remark] = balance.extras
    assert remark.text == f"lost in enriched: {', '.join(map(str, missing))}"


def test_an_event_of_the_sample_that_is_never_there_is_left_out_by_the_worker():
    there = Counter(name for name in SENT if name.number % PERIOD != 3)
    book, balance = compared({"enriched": there})
    assert not balance.is_unbalanced
    assert book.sent[0].in_topic == len(there)


def test_a_dead_letter_is_not_lost():
    there = Counter(SENT[1:])
    book, balance = compared({"enriched": there, CLICKS.dead_letters: Counter(SENT[:1])})
    assert not balance.is_unbalanced
    assert book.dead_letters == 1


@pytest.mark.parametrize(
    ("guarantee", "may_repeat"),
    [(Guarantee.AT_LEAST_ONCE, True), (Guarantee.EXACTLY_ONCE, False)],
)
def test_repeated_events_are_counted_and_break_what_is_promised_once(guarantee, may_repeat):
    there = Counter(SENT) + Counter(SENT[:2])
    book, balance = compared({"enriched": there}, guarantee)
    assert book.sent[0].repeated_ids == tuple(map(str, SENT[:2]))
    assert balance.is_unbalanced is not may_repeat


def test_two_records_of_each_event_are_usual_and_one_more_is_repeated():
    there = Counter(SENT) + Counter(SENT) + Counter(SENT[4:5])
    book, balance = compared({"parts": there}, Guarantee.EXACTLY_ONCE)
    assert book.sent[0].repeated_ids == (str(SENT[4]),)
    assert balance.is_unbalanced


def test_a_worker_whose_records_have_no_ids_is_unknown():
    book, balance = compared({"clicks": Counter(SENT), "enriched": Counter()})
    assert "has the id of an event" in book.unknown
    assert balance.is_unknown
    assert not balance.is_unbalanced


def test_of_many_lost_events_the_first_are_named():
    there = Counter(name for name in SENT if name.number >= 4 * PERIOD)
    _, balance = compared({"enriched": there})
    [remark] = balance.extras
    assert str(SENT[MAX_NAMED - 1]) in remark.text
    assert remark.text.endswith(f"{SENT[MAX_NAMED - 1]}")
    there = Counter(name for name in SENT if name.number > 4 * PERIOD)
    _, balance = compared({"enriched": there})
    assert balance.extras[0].text.endswith("and 1 more")


def test_what_kafka_acknowledged_and_does_not_have_is_lost_and_what_it_has_twice_is_repeated():
    there = Counter(SENT[1:]) + Counter(SENT[5:6])
    book = writing_book(EVENTS, SENT, {"clicks": there})
    [line] = book.lines()
    assert line.state is WindowState.UNBALANCED
    assert (book.lost_ids, book.repeated_ids) == ((str(SENT[0]),), (str(SENT[5]),))
    assert [str(difference) for difference in line.differences] == [
        "1 missing at target (clicks)",
        "1 too many at target (clicks)",
    ]


def test_an_event_that_was_not_acknowledged_may_be_there():
    book = writing_book(EVENTS, SENT[1:], {"clicks": Counter(SENT)})
    assert not Balance.of(book).is_unbalanced
