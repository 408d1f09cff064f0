"""The results of queries: in order, once, and of windows without events where a query asks."""

import random
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.event import event_schema
from headrace.queries.records.ended import (
    COPY_AFTER_MS,
    PartitionClocks,
    WindowResults,
    decode_ended,
)
from headrace.queries.records.result import QueryResult, ResultKind
from headrace.queries.records.snapshots import Restored, encode_silence
from headrace.queries.registry.record import RegisteredQuery, encode_query
from headrace.queries.windows.aggregate.plan import Plans
from headrace.queries.windows.aggregate.window import time_text
from headrace.queries.windows.answer.partition import PartitionAnswers
from headrace.queries.windows.answer.silent import WatchedQueries

MINUTE = 60_000_000
BASE = 1_700_000_040_000_000  # a full minute
REGISTERED = datetime(2023, 11, 14, 22, 10, tzinfo=UTC)
NOW_MS = BASE // 1000


class View:
    id: str
    at: datetime
    price: float


PLANS = Plans({"views": event_schema(View)})


def window(query, minute, *, kind=ResultKind.FINAL, ordered_by="views", partition=0):
    begin = BASE + minute * MINUTE
    result = QueryResult(
        query=query,
        registered=time_text(int(REGISTERED.timestamp() * 1e6)),
        revision=1,
        begin=time_text(begin),
        end=time_text(begin + MINUTE),
        emission=1,
        kind=kind,
        facets={},
        is_other=False,
        values={"count(*)": 1},
        events=1,
    )
    if kind is ResultKind.EARLY:
        return WindowResults(partition, "views", "", 0, [result])
    return WindowResults(partition, "views", ordered_by, begin + MINUTE, [result], matches=1)


def clocks(partition, minute, clock_minute=0, topic="views", matches=0):
    reached, sent = {topic: BASE + minute * MINUTE}, {"views": matches} if matches else {}
    return PartitionClocks(partition, reached, BASE + clock_minute * MINUTE, 1, sent)


def watched(*texts):
    queries = WatchedQueries(PLANS, 1)
    for number, text in enumerate(texts):
        query = RegisteredQuery(f"w{number}", text, "views", 1, REGISTERED, REGISTERED, None)
        queries.take(*encode_query(query))
    return queries


class Stage:
    """A partition of two matched ones, whose records are counted."""

    def __init__(self, *texts, position=None, silence=None, log=None):
        self.watched = watched(*texts)
        self.answers = PartitionAnswers(0, 2, self.watched, position, silence or {})
        self.log = [] if log is None else log
        if position is None:
            self.answers.offset = len(self.log)

    def take(self, *records, written_ms=NOW_MS):
        results = []
        for record in records:
            results += self.answers.take(record, len(self.log), written_ms)
            self.log.append(record)
        return named_results(results)


def named_results(results):
    return [(each.query, each.begin, each.kind.value) for each in results]


def named(query, minute, kind="final"):
    return (query, time_text(BASE + minute * MINUTE), kind)


def test_a_window_waits_until_all_partitions_have_passed_its_end():
    stage = Stage()
    assert stage.take(window("q", 1), clocks(0, 5)) == []
    assert stage.take(window("q", 0), clocks(1, 1)) == [named("q", 0)]
    assert stage.take(clocks(1, 2)) == [named("q", 1)]
    assert stage.answers.waiting == 0


def test_an_early_result_does_not_wait():
    stage = Stage()
    early = window("q", 3, kind=ResultKind.EARLY)
    assert stage.take(early) == [named("q", 3, "early")]


def test_windows_that_the_clock_ends_wait_for_the_clocks():
    stage = Stage()
    by_clock = window("q", 1, ordered_by="")
    assert stage.take(by_clock, clocks(0, 9, 9), clocks(1, 9, 1)) == []
    assert stage.take(clocks(1, 9, 2)) == [named("q", 1)]


def test_a_topic_that_a_partition_has_not_seen_ends_no_window():
    stage = Stage()
    assert stage.take(window("q", 0), clocks(0, 5), clocks(1, 5, topic="other")) == []
    assert stage.take(clocks(1, 5)) == [named("q", 0)]


def test_clocks_that_go_back_change_nothing():
    stage = Stage()
    stage.take(clocks(0, 5), clocks(1, 5))
    assert stage.take(clocks(0, 2), window("q", 6)) == []
    assert stage.take(clocks(0, 7), clocks(1, 7)) == [named("q", 6)]


EMPTY = "SELECT count(*), sum(price) FROM views WINDOW 1 minute EMPTY WINDOWS EMIT"
LOSS = "SELECT count(*) FROM views WINDOW 1 minute LOSS OF SIGNAL AFTER 2 WINDOWS"


def test_windows_without_events_have_results_where_the_query_asks():
    stage = Stage(EMPTY)
    stage.take(clocks(0, 0), clocks(1, 0))
    given = stage.take(window("w0", 1), clocks(0, 3), clocks(1, 3))
    assert given == [named("w0", 0, "empty"), named("w0", 1), named("w0", 2, "empty")]


def test_a_result_of_a_window_without_events_has_the_values_of_none():
    stage = Stage(EMPTY)
    stage.take(clocks(0, 0), clocks(1, 0))
    stage.take(clocks(0, 1))
    [result] = stage.answers.take(clocks(1, 1), 9, NOW_MS)
    assert result.values == {"count(*)": 0, "sum(price)": None}
    assert (result.kind, result.events) == (ResultKind.EMPTY, 0)


def test_loss_of_signal_is_named_once_and_again_after_events():
    stage = Stage(LOSS)
    stage.take(clocks(0, 0), clocks(1, 0))
    lost = stage.take(window("w0", 0), clocks(0, 6), clocks(1, 6))
    assert lost == [named("w0", 0), named("w0", 2, "lost")]
    again = stage.take(window("w0", 7), clocks(0, 11), clocks(1, 11))
    assert again == [named("w0", 7), named("w0", 9, "lost")]


@pytest.mark.parametrize(
    ("closing", "seconds"),
    [
        ("", 0),
        ("ALLOWED LATENESS 30 seconds", 30),
        ("CLOSE BY CLOCK 0 seconds", 0),
        ("CLOSE BY CLOCK 10 seconds", 10),
    ],
)
def test_a_window_without_events_ends_when_one_with_events_does(closing, seconds):
    stage = Stage(f"SELECT count(*) FROM views WINDOW 1 minute {closing} EMPTY WINDOWS EMIT")
    ordered_by, due_us = "" if "CLOCK" in closing else "views", BASE + MINUTE + seconds * 1_000_000
    final = WindowResults(0, "views", ordered_by, due_us, window("w0", 0).results)

    def clocks_of(time_us):
        return [PartitionClocks(number, {"views": time_us}, time_us) for number in range(2)]

    stage.take(*clocks_of(due_us - MINUTE))
    assert stage.take(final, *clocks_of(due_us - 1)) == []
    assert stage.take(*clocks_of(due_us)) == [named("w0", 0)]
    assert stage.take(*clocks_of(due_us + MINUTE - 1)) == []
    assert stage.take(*clocks_of(due_us + MINUTE)) == [named("w0", 1, "empty")]


def test_queries_of_which_no_window_has_ended_are_not_looked_at(monkeypatch):
    by_hour = EMPTY.replace("1 minute", "1 hour")
    elsewhere = EMPTY + " CLOSE BY CLOCK 1 second"
    stage = Stage(*[by_hour] * 20, *[elsewhere] * 20, EMPTY)
    stage.take(clocks(0, 0), clocks(1, 0))
    looked_at, is_live = [], RegisteredQuery.is_live

    def look(query, at):
        looked_at.append(query.id)
        return is_live(query, at)

    monkeypatch.setattr(RegisteredQuery, "is_live", look)
    given = stage.take(clocks(0, 1), clocks(1, 1))
    assert given == [named("w40", 0, "empty")]
    assert looked_at == ["w40"]


def test_a_query_that_was_cancelled_or_has_expired_has_no_more_results():
    stage = Stage(EMPTY)
    stage.take(clocks(0, 0), clocks(1, 0))
    stage.watched.take(b"w0", None)
    assert stage.take(clocks(0, 3), clocks(1, 3)) == []


def test_windows_before_the_registration_have_no_results():
    stage = Stage()
    late = datetime.fromtimestamp((BASE + 2 * MINUTE) / 1e6, UTC)
    query = RegisteredQuery("w", EMPTY, "views", 1, late, late, None)
    stage.watched.take(*encode_query(query))
    stage.take(clocks(0, 0), clocks(1, 0))
    assert stage.take(clocks(0, 4), clocks(1, 4)) == [
        named("w", 2, "empty"),
        named("w", 3, "empty"),
    ]


@pytest.mark.parametrize("days", [1, 400])
def test_a_jump_of_time_makes_a_thousand_results_at_most(days, caplog):
    stage = Stage(EMPTY)
    stage.take(clocks(0, 0), clocks(1, 0))
    minutes = days * 1_440
    given = stage.take(clocks(0, minutes), clocks(1, minutes))
    assert len(given) == 1_000
    [warning] = caplog.messages
    assert "queries with more: 1" in warning
    assert given[-1] == named("w0", minutes - 1, "empty")


class KilledStage:
    """Stages that take a log one after the other, with what their transactions have written.

    Copies of windows are written to the log, behind what others have written meanwhile.
    """

    def __init__(self, records, texts):
        self.coming, self.watched = list(records), watched(*texts)
        self.log, self.snapshots, self.results = [], [], []
        self.now_ms, self.copies = NOW_MS, 0
        self.kill()

    def kill(self):
        """What was not written is lost; another stage starts."""
        restored = Restored()
        restored.take(self.snapshots)
        self.answers = PartitionAnswers(0, 2, self.watched, restored.answered, restored.silence)
        self.answered = []

    def send(self, count):
        """Others write more records, each some hours after the one before."""
        for _ in range(min(count, len(self.coming))):
            self.now_ms += COPY_AFTER_MS // 5
            self.log.append((self.coming.pop(0), self.now_ms))

    def take(self, count):
        for offset in range(self.answers.offset, min(len(self.log), self.answers.offset + count)):
            record, written_ms = self.log[offset]
            self.answered += self.answers.take(record, offset, written_ms)

    def write(self, *, others=0):
        """Writes a transaction; others write some records in front of its copies."""
        copies = list(self.answers.copies(self.now_ms))
        self.send(others)
        self.log += [(decode_ended(msgspec.json.encode(copy), 2), self.now_ms) for copy in copies]
        self.copies += len(copies)
        self.snapshots.append(msgspec.json.encode(self.answers.position({}, 1, {})))
        self.snapshots += encode_silence(self.answers.changed_silence())
        self.results += self.answered
        self.answered = []

    def finish(self):
        self.send(len(self.coming))
        self.take(len(self.log))
        self.write()


def windows_and_clocks(chance):
    reached, sent = [0, 0], [0, 0]
    for partition in range(2):
        yield clocks(partition, 0)
    for _ in range(60):
        partition = chance.randrange(2)
        if chance.random() < 0.5:
            minute = reached[partition] + chance.randrange(4)
            sent[partition] += 1
            yield window(chance.choice(["w0", "w1", "q"]), minute, partition=partition)
        else:
            reached[partition] += chance.randrange(3)
            minute = reached[partition]
            yield clocks(partition, minute, minute, matches=sent[partition])


def windows_in(records):
    return [record for record in records if isinstance(record, WindowResults)]


@given(st.integers(0, 2**32))
def test_a_stage_that_is_killed_goes_on_without_a_gap_or_a_repetition(seed):
    chance = random.Random(seed)
    records = list(windows_and_clocks(chance))
    undisturbed = Stage(EMPTY, LOSS).take(*records)
    killed = KilledStage(records, (EMPTY, LOSS))
    while killed.coming:
        killed.send(chance.randrange(8))
        killed.take(chance.randrange(12))
        if chance.random() < 0.5:
            killed.write(others=chance.randrange(4))
        if chance.random() < 0.4:
            killed.kill()
    killed.finish()
    results = named_results(killed.results)
    assert results == undisturbed
    for counts in killed.answers.counts.values():
        assert counts.unbalanced == 0
        assert counts.answered + killed.answers.waiting == len(windows_in(records))
    for query in ("w0", "w1", "q"):
        begins = [begin for name, begin, kind in results if name == query and kind == "final"]
        assert begins == sorted(begins)


def test_a_window_that_waits_for_half_a_day_is_written_once_more_and_pins_no_position():
    killed = KilledStage([window("q", 1), window("q", 0), clocks(0, 5)], ())
    killed.send(3)
    killed.take(3)
    for _ in range(5):
        killed.now_ms += COPY_AFTER_MS
        killed.write()
        killed.write()  # the copies have not been taken yet
        killed.take(9)
    assert killed.copies == 10
    assert killed.answers.waiting == 2
    first_offset = killed.answers.position({}, 1, {}).first_offset
    assert first_offset == len(killed.log) - 2
    killed.write()
    killed.kill()
    assert killed.answers.offset == first_offset
    killed.coming.append(clocks(1, 2))
    killed.finish()
    assert named_results(killed.results) == [named("q", 0), named("q", 1)]


def test_a_window_that_waits_for_less_than_half_a_day_is_not_written_once_more():
    stage = Stage()
    stage.take(window("q", 0), written_ms=NOW_MS - COPY_AFTER_MS + 1)
    assert list(stage.answers.copies(NOW_MS)) == []
    assert len(list(stage.answers.copies(NOW_MS + 1))) == 1


@pytest.mark.parametrize("is_committed", [False, True])
def test_a_window_has_its_place_though_the_stage_is_killed_around_the_copy(is_committed):
    killed = KilledStage([window("q", 0), clocks(0, 5), window("q", 1), clocks(1, 9)], ())
    killed.send(2)
    killed.take(2)
    killed.write()
    killed.now_ms += COPY_AFTER_MS
    if is_committed:
        killed.write(others=2)  # a later window, and the clocks that end both, are before the copy
        assert killed.copies == 1
    killed.kill()
    killed.finish()
    assert named_results(killed.results) == [named("q", 0), named("q", 1)]
    killed.kill()
    killed.finish()
    assert len(killed.results) == 2


def counts_of(stage):
    return stage.answers.counts["views"]


@pytest.mark.parametrize("first", [[], [clocks(0, 0, matches=4), clocks(1, 0)]])
def test_a_copy_whose_original_was_deleted_before_any_was_taken_is_counted(first):
    stage = Stage(log=[None] * 7)
    copy = msgspec.structs.replace(window("q", 0), original=3)
    stage.take(*first, copy, copy, clocks(0, 5, matches=4), clocks(1, 5))
    assert (counts_of(stage).unbalanced, counts_of(stage).answered) == (0, 1)


@pytest.mark.parametrize("first_offset", [0, 7])
def test_what_a_partition_sent_before_the_first_record_is_known_to_be_none_or_not_known(
    first_offset,
):
    log = [None] * first_offset
    stage = Stage(log=log)
    stage.take(clocks(0, 0))
    restarted = Stage(log=log, position=stage.answers.position({}, 1, {}))
    restarted.take(clocks(1, 0, matches=9))
    missing = 9 if first_offset == 0 else 0
    assert sum(each.missing_records for each in restarted.answers.counts.values()) == missing


def test_what_was_sent_and_deleted_before_any_record_was_taken_is_missing():
    position = Stage().answers.position({}, 1, {})
    behind = Stage(log=[None] * 7, position=position)
    behind.take(clocks(0, 0, matches=4))
    assert counts_of(behind).missing_records == 4


def test_windows_whose_records_were_deleted_while_they_waited_are_named_and_missing(caplog):
    log = []
    stage = Stage(log=log)
    stage.take(clocks(0, 0), clocks(1, 0), window("q", 1), clocks(0, 0, matches=1))
    position = stage.answers.position({}, 1, {})
    whole, log_of_whole = Stage(position=position, log=log[:2]), log[2:]
    whole.take(*log_of_whole, clocks(1, 0))
    assert counts_of(whole).unbalanced == 0
    assert "have no results" not in caplog.text
    behind = Stage(position=position, log=log)
    behind.take(clocks(1, 0))
    assert counts_of(behind).missing_in_results == 1
    assert "1 matches of views have no results" in caplog.text


def test_a_window_is_answered_once_though_two_stages_have_copied_it():
    killed = KilledStage([window("q", 0), clocks(0, 5)], ())
    killed.send(2)
    killed.take(2)
    killed.now_ms += COPY_AFTER_MS
    killed.write()
    killed.kill()
    killed.take(1)
    killed.write()
    assert killed.copies == 2
    killed.take(9)
    assert killed.answers.waiting == 1
    killed.coming.append(clocks(1, 5))
    killed.finish()
    assert named_results(killed.results) == [named("q", 0)]


def test_a_query_has_results_of_windows_without_events_in_one_partition():
    queries = WatchedQueries(PLANS, 8)
    for number in range(20):
        query = RegisteredQuery(f"w{number}", EMPTY, "views", 1, REGISTERED, REGISTERED, None)
        queries.take(*encode_query(query))
    found = [
        [each.registered.id for each in queries.live(partition, NOW_MS)] for partition in range(8)
    ]
    assert sorted(name for names in found for name in names) == sorted(
        f"w{number}" for number in range(20)
    )
    assert len([each for each in found if each]) > 1


@pytest.mark.parametrize("clause", ["empty\nwindows emit", "loss  of signal after 3 windows"])
def test_a_text_that_another_program_wrote_asks_for_windows_without_events(clause):
    queries = watched(f"select count(*) from views window 1 minute {clause}")
    assert [each.registered.id for each in queries.live(0, NOW_MS)] == ["w0"]


def test_loss_of_signal_is_named_where_a_query_never_had_an_event():
    sliding = (
        "SELECT count(*) FROM views WINDOW 5 minutes SLIDE BY 1 minute "
        "LOSS OF SIGNAL AFTER 3 WINDOWS"
    )
    stage = Stage(sliding)
    stage.take(clocks(0, 0), clocks(1, 0))
    kinds = [kind for _, _, kind in stage.take(clocks(0, 30), clocks(1, 30))]
    assert kinds == ["lost"]


def test_loss_of_signal_is_named_after_a_jump_of_time():
    stage = Stage(LOSS)
    stage.take(clocks(0, 0), clocks(1, 0))
    kinds = [kind for _, _, kind in stage.take(clocks(0, 5_000), clocks(1, 5_000))]
    assert kinds == ["lost"]


def test_loss_of_signal_is_known_of_all_windows_of_a_jump_of_time():
    stage = Stage(LOSS)
    stage.take(clocks(0, 0), clocks(1, 0))
    assert stage.take(clocks(0, 10), clocks(1, 10)) == [named("w0", 1, "lost")]
    given = stage.take(window("w0", 20), clocks(0, 5_000, matches=1), clocks(1, 5_000))
    assert given == [named("w0", 20), named("w0", 22, "lost")]
    assert stage.take(clocks(0, 6_000, matches=1), clocks(1, 6_000)) == []


def test_events_of_windows_that_are_answered_late_are_a_signal():
    stage = Stage(LOSS + " CLOSE BY CLOCK 0 seconds")
    stage.take(clocks(0, 0), clocks(1, 0))
    for minute in range(6):
        late = window("w0", minute, ordered_by="")
        both = clocks(0, 0, minute + 1), clocks(1, 0, minute + 1)
        assert stage.take(*both, late) == [named("w0", minute)]
    lost = stage.take(clocks(0, 0, 20), clocks(1, 0, 20))
    assert lost == [named("w0", 7, "lost")]


def test_events_of_windows_that_others_than_the_text_of_now_end_are_a_signal():
    by_hour = LOSS.replace("1 minute", "1 hour")
    stage = Stage(by_hour)
    stage.take(clocks(0, 0), clocks(1, 0))
    stage.take(window("w0", 5), clocks(0, 6), clocks(1, 6))
    [(seen_us, is_reported)] = stage.answers.changed_silence().values()
    assert (seen_us, is_reported) == (BASE + 6 * MINUTE, False)


def test_windows_of_a_query_keep_their_order_beside_empty_ones_of_others():
    stage = Stage(EMPTY + " CLOSE BY CLOCK 0 seconds")
    stage.take(clocks(0, 0), clocks(1, 0))
    quiet = [
        msgspec.structs.replace(window("quiet", minute, ordered_by=""), due_us=BASE + place)
        for place, minute in enumerate([5, 2])
    ]
    given = stage.take(*quiet, clocks(0, 0, 1), clocks(1, 0, 1))
    assert given == [named("quiet", 5), named("quiet", 2), named("w0", 0, "empty")]


def test_a_renewal_changes_nothing_and_an_update_begins_with_the_next_window():
    stage = Stage(EMPTY, LOSS)
    stage.take(clocks(0, 0), clocks(1, 0))
    later = datetime.fromtimestamp((BASE + 90_000_000) / 1e6, UTC)
    for name, text, revision in (("w0", EMPTY, 1), ("w1", LOSS, 2)):
        query = RegisteredQuery(name, text, "views", revision, REGISTERED, later, None)
        stage.watched.take(*encode_query(query))
    assert stage.take(clocks(0, 5), clocks(1, 5)) == [
        named("w0", 0, "empty"),
        named("w0", 1, "empty"),
        named("w0", 2, "empty"),
        named("w0", 3, "empty"),
        named("w1", 3, "lost"),
        named("w0", 4, "empty"),
    ]


def test_events_of_an_earlier_revision_are_a_signal():
    stage = Stage(LOSS)
    stage.take(clocks(0, 0), clocks(1, 0))
    later = datetime.fromtimestamp((BASE + 30_000_000) / 1e6, UTC)
    query = RegisteredQuery("w0", LOSS, "views", 2, REGISTERED, later, None)
    stage.watched.take(*encode_query(query))
    assert stage.take(window("w0", 0), window("w0", 2), clocks(0, 4), clocks(1, 4)) == [
        named("w0", 0),
        named("w0", 2),
    ]


def test_a_query_that_fits_no_topic_harms_no_other():
    queries = WatchedQueries(PLANS, 1)
    for text, topic in (
        ("SELECT sum(gone) FROM views EMPTY WINDOWS EMIT", "views"),
        ("SELECT count(*) FROM elsewhere CLOSE BY CLOCK 1 second EMPTY WINDOWS EMIT", "elsewhere"),
    ):
        query = RegisteredQuery("w", text, topic, 1, REGISTERED, REGISTERED, None)
        queries.take(*encode_query(query))
    assert list(queries.live(0, NOW_MS)) == []


def test_what_is_known_of_cancelled_queries_is_forgotten():
    stage = Stage(LOSS)
    stage.take(clocks(0, 0), clocks(1, 0))
    stage.take(clocks(0, 2), clocks(1, 2))
    assert stage.answers.changed_silence(all_queries=True)
    stage.watched.take(b"w0", None)
    stage.take(clocks(0, 3), clocks(1, 3), written_ms=NOW_MS + MINUTE // 1_000)
    assert not stage.answers.changed_silence(all_queries=True)


@pytest.mark.parametrize(("expired_ms", "known"), [(3_540_000, ["w0", "w1"]), (3_660_000, ["w0"])])
def test_queries_that_expired_more_than_an_hour_ago_are_forgotten(expired_ms, known):
    stage = Stage(EMPTY)
    expires = datetime.fromtimestamp(NOW_MS / 1000 + 60, UTC)
    query = RegisteredQuery("w1", LOSS, "views", 1, REGISTERED, REGISTERED, expires)
    stage.watched.take(*encode_query(query))
    stage.take(clocks(0, 0), clocks(1, 0), written_ms=NOW_MS + 60_000 + expired_ms)
    # The time is one at which it had not expired.
    assert [each.registered.id for each in stage.watched.live(0, NOW_MS)] == known
    ended = stage.watched.ended(0, "views", BASE, BASE + MINUTE, NOW_MS)
    assert [each.registered.id for each, _ in ended] == known
    stage.watched.take(*encode_query(query))  # it is registered once more
    assert len(list(stage.watched.live(0, NOW_MS))) == 2


def test_a_query_has_results_until_it_has_expired_when_a_record_was_written():
    stage = Stage()
    expires = datetime.fromtimestamp(NOW_MS / 1000 + 60, UTC)
    query = RegisteredQuery("w0", EMPTY, "views", 1, REGISTERED, REGISTERED, expires)
    stage.watched.take(*encode_query(query))
    stage.take(clocks(0, 0), clocks(1, 0))
    assert stage.take(clocks(0, 1), clocks(1, 1), written_ms=NOW_MS + 60_000) == []
    # The clock of a broker was ahead, and is right again.
    [again] = stage.take(clocks(0, 2), clocks(1, 2), written_ms=NOW_MS + 59_999)
    assert again == named("w0", 1, "empty")


def test_what_queries_that_were_cancelled_had_in_common_is_forgotten():
    queries = watched(*(EMPTY.replace("1 minute", f"{n} minutes") for n in range(1, 9)))
    for number in range(8):
        queries.take(f"w{number}".encode(), None)
    assert not any(queries._rhythms.values())


def test_silence_is_noted_of_queries_that_ask_for_loss_of_signal_alone():
    stage = Stage(EMPTY, LOSS)
    stage.take(clocks(0, 0), clocks(1, 0))
    stage.take(window("w0", 0), window("w1", 0), clocks(0, 2), clocks(1, 2))
    [name] = stage.answers.changed_silence(all_queries=True)
    assert name.startswith("w1 ")


def test_silence_is_written_where_it_has_changed():
    stage = Stage(LOSS, LOSS)
    stage.take(clocks(0, 0), clocks(1, 0))
    stage.take(window("w0", 0), clocks(0, 1), clocks(1, 1))
    assert len(stage.answers.changed_silence()) == 2
    stage.take(clocks(0, 2), clocks(1, 2))
    [name] = stage.answers.changed_silence()  # the loss of its signal is known now
    assert name.startswith("w1 ")
    stage.take(clocks(0, 2), clocks(1, 2))
    assert stage.answers.changed_silence() == {}
    assert len(stage.answers.changed_silence(all_queries=True)) == 2


def test_events_while_a_query_did_not_ask_for_loss_of_signal_begin_its_silence_anew():
    stage = Stage(LOSS)
    stage.take(clocks(0, 0), clocks(1, 0))
    stage.take(window("w0", 0), clocks(0, 1), clocks(1, 1))
    for revision, (text, minute) in enumerate([(EMPTY, 1), (LOSS, 8)], start=2):
        updated = datetime.fromtimestamp((BASE + minute * MINUTE) / 1e6, UTC)
        query = RegisteredQuery("w0", text, "views", revision, REGISTERED, updated, None)
        stage.watched.take(*encode_query(query))
        begun = [window("w0", each) for each in range(minute, minute + 7)] if minute == 1 else []
        given = stage.take(*begun, clocks(0, minute + 7), clocks(1, minute + 7))
    assert given == [named("w0", 9, "lost")]


def test_a_record_whose_time_is_of_another_unit_changes_no_time():
    stage = Stage(EMPTY)
    stage.take(clocks(0, 0), clocks(1, 0))
    nanoseconds = NOW_MS * 1_000_000
    given = stage.take(clocks(0, 1), clocks(1, 1), written_ms=nanoseconds)
    assert given == [named("w0", 0, "empty")]
    stage.take(window("q", 5), written_ms=-1)
    assert list(stage.answers.copies(NOW_MS)) == []


def test_windows_before_1970_are_in_order():
    stage = Stage()
    early = [
        WindowResults(0, "views", "views", -minute * MINUTE, window("q", -minute).results)
        for minute in (1, 3, 2)
    ]
    assert stage.take(*early) == []
    reached = PartitionClocks(0, {"views": 0}, 0), PartitionClocks(1, {"views": 0}, 0)
    begins = [begin for _, begin, _ in stage.take(*reached)]
    assert begins == sorted(begins)
    assert len(begins) == 3
