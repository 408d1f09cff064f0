"""Entries add up in any order, and survive being merged, killed and listed."""

from dataclasses import replace
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import SinkError
from headrace.ledger.sums import Fate, Hop, Sums
from headrace.pipelines.ledger.counting.waiting import all_lines
from headrace.pipelines.ledger.entry import EntryRange, LedgerEntry, merged, span_of
from headrace.pipelines.ledger.folder import LedgerFolder
from headrace.pipelines.ledger.sums import LedgerKey, LedgerLine, added, lines_of
from headrace.storage import files as storage

lines = st.lists(
    st.builds(
        LedgerLine,
        st.builds(
            LedgerKey,
            st.sampled_from([Hop.READ, Hop.SINK]),
            st.sampled_from(list(Fate)),
            st.none() | st.integers(0, 5).map(lambda n: n * 3600),
            st.just("clicks"),
            st.integers(0, 1),
        ),
        st.builds(Sums, st.integers(0, 9), st.integers(0, 9), st.integers(0, 2**64 - 1)),
    ),
    max_size=6,
)


def entry(batch, lines=(), seconds=3600, checkpoint=1):
    ranges = (EntryRange("clicks", "id", 0, batch * 10, batch * 10 + 10),)
    clocks = {"clicks": {0: batch}}
    return LedgerEntry(
        checkpoint, batch, batch, seconds, ranges, tuple(lines), clocks=clocks, positions=clocks
    )


@given(st.lists(lines, min_size=2, max_size=6), st.randoms())
def test_the_sums_do_not_depend_on_how_entries_are_merged(of_batches, random):
    entries = [entry(batch, lines) for batch, lines in enumerate(of_batches)]
    in_order = merged(entries)
    while len(entries) > 1:
        number = random.randrange(len(entries) - 1)
        neighbours = entries[number : number + 2]
        random.shuffle(neighbours)
        entries[number : number + 2] = [sum(neighbours[1:], neighbours[0])]
    assert entries[0] == in_order
    every_line = [line for batch in of_batches for line in batch]
    assert added(in_order.lines) == {p: s for p, s in added(every_line).items() if s != Sums()}
    assert in_order.clocks == {"clicks": {0: len(of_batches) - 1}}
    assert len(in_order.ranges) == 1


@given(st.permutations(range(4)))
def test_what_waited_is_of_the_first_batch_and_what_waits_of_the_last_one(order):
    """Batch ids start over with a checkpoint, and not every batch has every partition."""
    held = [
        (LedgerLine(LedgerKey(Hop.JOIN, Fate.WAITING, 0, "clicks", 0), Sums(n, n, n)),)
        for n in range(1, 6)
    ]
    entries = [
        replace(
            entry(batch, checkpoint=checkpoint),
            waited={"clicks": {0: held[number], number + 1: ()}},
            waiting={"clicks": {0: held[number + 1]}},
        )
        for number, (checkpoint, batch) in enumerate([(1, 0), (1, 1), (2, 0), (2, 1)])
    ]
    total = merged(entries[number] for number in order)
    assert total.waited == {"clicks": {0: held[0], 1: (), 2: (), 3: (), 4: ()}}
    assert total.waiting == {"clicks": {0: held[4]}}
    assert total.with_windows(7200).waiting == total.waiting


@given(
    st.lists(
        st.tuples(st.booleans(), st.lists(st.none() | st.integers(0, 3), min_size=2, max_size=2)),
        min_size=2,
        max_size=8,
    ),
    st.randoms(),
)
def test_what_other_batches_have_changed_of_what_waits_is_no_difference(batches, random):
    """Of each batch: whether it has an entry, and by partition what waits after it.

    A partition of which nothing is said has no records in it.
    """
    entries, waits, ends = [], [0, 0], [0, 0]
    for batch, (has_entry, after) in enumerate(batches):
        before, waits = (
            waits,
            [old if new is None else new for old, new in zip(waits, after, strict=True)],
        )
        starts, ends = ends, [at + (new is not None) for at, new in zip(ends, after, strict=True)]
        read = [p for p in (0, 1) if after[p] is not None]
        if has_entry and read:
            entries.append(
                LedgerEntry(
                    1,
                    batch,
                    batch,
                    3600,
                    tuple(EntryRange("clicks", "id", p, starts[p], ends[p]) for p in read),
                    tuple(line for p in read for line in waiting(p, waits[p] - before[p])),
                    positions={"clicks": dict(enumerate(ends))},
                    waited={"clicks": {p: waiting(p, before[p]) for p in read}},
                    waiting={"clicks": {p: waiting(p, waits[p]) for p in read}},
                )
            )
    while len(entries) > 1:
        number = random.randrange(len(entries) - 1)
        entries[number : number + 2] = [entries[number] + entries[number + 1]]
    for total in entries:
        came = [*all_lines(total.waited), *total.changed_elsewhere, *total.lines]
        assert set(lines_of(added(came))) == set(all_lines(total.waiting))


def waiting(partition, number):
    key = LedgerKey(Hop.JOIN, Fate.WAITING, 0, "clicks", partition)
    return lines_of({key: Sums(number, number, number)})


@given(lines)
def test_an_entry_is_read_as_it_was_written(of_batch):
    written = entry(7, of_batch)
    assert LedgerEntry.from_bytes(written.to_bytes()) == written


def test_windows_of_another_length_are_added_to_the_longer_ones():
    hour, minute = (
        [LedgerLine(LedgerKey(Hop.READ, Fate.IN, start, "clicks", 0), Sums(1, 1, 1))]
        for start in (3600, 3660)
    )
    total = entry(0, hour) + entry(1, minute, seconds=60)
    assert added(total.lines) == {LedgerKey(Hop.READ, Fate.IN, 3600, "clicks", 0): Sums(2, 2, 2)}


@pytest.mark.parametrize("name", [".1-0-1-1.json.x.tmp", "1-0-1.json", "a-0-1-1.json", "1-0-1-1"])
def test_other_files_are_no_entries(name):
    assert span_of(name) is None


@pytest.fixture
def folder(tmp_path):
    folder = LedgerFolder(str(tmp_path), "clicks-to-lake")
    for batch in range(6):
        folder.write(entry(batch))
    return folder


def covered(folder, done=99):
    return merged(folder.counted({1: done})).ranges


def test_a_crash_after_a_merge_counts_nothing_twice(folder, monkeypatch):
    monkeypatch.setattr(storage, "delete_files", lambda *_: None)
    folder.merge(folder.spans()[:4])
    assert covered(folder) == (EntryRange("clicks", "id", 0, 0, 60),)
    assert len(folder.counted({1: 99})) == 3


def test_merged_entries_are_deleted(folder):
    folder.merge(folder.spans()[:4])
    assert [(span.level, span.first, span.last) for span in folder.spans()] == [
        (0, 4, 4),
        (0, 5, 5),
        (1, 0, 3),
    ]
    assert len(storage.list_files(folder.uri)) == 4


@pytest.mark.parametrize("done", range(6))
def test_a_merged_entry_is_divided_at_the_last_batch_that_the_sink_holds(folder, done):
    folder.merge(folder.spans()[1:5])
    assert covered(folder, done) == (EntryRange("clicks", "id", 0, 0, done * 10 + 10),)
    assert len(covered(folder)) == 1


def test_an_entry_that_was_merged_twice_is_divided_into_those_that_were_merged(folder):
    spans = folder.spans()
    folder.merge([folder.merge(spans[:3]), folder.merge(spans[3:])])
    assert covered(folder, 4) == (EntryRange("clicks", "id", 0, 0, 30),)
    assert folder.counted({1: 1}) == []
    assert len(storage.list_files(folder.uri)) == 2


def test_an_entry_that_an_older_headrace_has_merged_counts_whole_or_not_at_all(folder):
    span = folder.merge(folder.spans()[:4])
    storage.delete(f"{folder.uri}/{span.parts_name}")
    assert folder.counted({1: 2}) == []
    assert covered(folder, 3) == (EntryRange("clicks", "id", 0, 0, 40),)


def test_an_entry_of_an_older_headrace_is_read():
    old = (
        b'{"checkpoint":1,"first":0,"last":63,"window_seconds":3600,"ranges":[],"lines":[],'
        b'"level":1,"clocks":{"clicks":{"0":5}},"positions":{"clicks":{"0":7}}}'
    )
    read = LedgerEntry.from_bytes(old)
    assert (read.positions, read.began, read.horizon) == ({"clicks": {0: 7}}, (), 0)
    assert not read.is_whole


@pytest.mark.parametrize("merged_before", [False, True])
@pytest.mark.parametrize("batch", range(7))
def test_what_is_written_of_later_batches_is_forgotten_when_a_batch_comes_again(
    folder, merged_before, batch
):
    """That of the batch itself is about to be replaced, and may tell what a side table took."""
    folder.write(entry(0, checkpoint=2))
    if merged_before:
        folder.merge(folder.spans()[1:5])
    folder.cut(1, batch)
    kept = [span for span in folder.spans() if span.checkpoint == 1]
    assert max(span.last for span in kept) == min(batch, 5)
    assert all(span.level == 0 for span in kept if span.last == batch)
    assert len(folder.counted({2: 0})) == 1
    folder.write(entry(batch))
    assert covered(folder) == (EntryRange("clicks", "id", 0, 0, batch * 10 + 10),)


def test_entries_of_batches_that_the_sink_lacks_do_not_count(folder):
    folder.write(entry(0, checkpoint=2))
    assert covered(folder, done=4) == (EntryRange("clicks", "id", 0, 0, 50),)
    assert folder.counted({}) == []


def test_a_reader_lists_again_where_a_driver_merges_meanwhile(folder, monkeypatch):
    spans, read = folder.spans(), folder.read

    def merging(span):
        monkeypatch.setattr(folder, "read", read)
        folder.merge(spans)
        return read(span)

    monkeypatch.setattr(folder, "read", merging)
    assert covered(folder) == (EntryRange("clicks", "id", 0, 0, 60),)


def test_a_damaged_entry_is_an_error_that_names_the_file(folder):
    storage.write_bytes_atomic(f"{folder.uri}/1-0-3-3.json", b"{")
    with pytest.raises(SinkError, match=r"1-0-3-3\.json"):
        covered(folder)


def test_the_order_of_entries_of_two_checkpoints_is_that_of_their_numbers():
    later = reduce(LedgerEntry.__add__, [entry(3, checkpoint=2), entry(9)])
    assert (later.checkpoint, later.clocks) == (2, {"clicks": {0: 3}})
