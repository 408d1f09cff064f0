"""An index that is damaged is recreated."""

import contextlib
import itertools
import json
import random
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import rocksdict
from tests.waiting import LIMIT_SECONDS

from headrace.pipelines.join.declaration import Match
from headrace.pipelines.join.events import KeyedEvent, KeyedEvents, fingerprints
from headrace.pipelines.join.index import earlier_index, fingerprint_runs
from headrace.pipelines.join.index.earlier_index import EarlierIndex, with_index
from headrace.pipelines.join.index.fingerprint_runs import FingerprintRuns
from headrace.pipelines.join.index.range_entries import RangeEntries
from headrace.pipelines.join.index.slices import MAX_RANGES
from headrace.pipelines.join.index.sorted_files import sorted_files

SLICE = 60_000_000
BEGIN = 1_764_000_000_000_000
EVENT = KeyedEvent(b"a", 1_000_000_000, 1, b"value")


def index_with_event(folder):
    index = EarlierIndex(folder, SLICE)
    index.ingest({"one": sorted_files(KeyedEvents.of([EVENT]), SLICE, Match.ID)})
    assert index.find([b"a"], fingerprints([b"a"]), 0, 5) == {b"a": EVENT}


def lose_files(folder):
    for file in (folder / "index").glob("*/*.sst"):
        file.unlink()


def lose_fingerprints(folder):
    [run] = (folder / "fingerprints").glob("*/*.run")
    run.unlink()


def lose_all(folder):
    shutil.rmtree(folder / "index")


def lose_manifest(folder):
    manifest(folder).unlink()


def cut_manifest(folder):
    """As a disk that lies about flushes does; RocksDB takes it for the end."""
    path = manifest(folder)
    path.write_bytes(path.read_bytes()[:-1])


def tear_marks(folder):
    (folder / "marks.json").write_bytes(b'{"files": ["\xff')


def manifest(folder):
    [path] = (folder / "index").glob("*/MANIFEST-*")
    return path


@pytest.mark.parametrize(
    "lose",
    [lose_files, lose_fingerprints, lose_all, tear_marks],
)
def test_what_was_lost_is_not_taken_for_what_is_there(tmp_path, lose):
    """Else later events would find nothing, without an error."""
    index_with_event(tmp_path)
    lose(tmp_path)
    assert not with_index(tmp_path, SLICE, lambda index: index.ingested.files)


@pytest.mark.parametrize("lose", [lose_manifest, cut_manifest])
def test_a_manifest_that_was_lost_is_noticed_where_its_range_is_read(tmp_path, lose):
    index_with_event(tmp_path)
    lose(tmp_path)

    def use(index):
        keys_found(index, [b"a"])
        return index.ingested.files

    assert not with_index(tmp_path, SLICE, use)


@pytest.mark.parametrize(
    "lose", [shutil.rmtree, lambda folder: next(folder.glob("*.run")).unlink()]
)
def test_fingerprints_that_disappear_while_it_is_open_are_noticed(tmp_path, lose):
    """Their keys would look as if they were not there, in this batch and in all that follow."""
    uses = []

    def use(index):
        uses.append(index.ingested.files)
        if not index.ingested.files:
            applied(index, "one", EVENT)
            applied(index, "two", EVENT._replace(key=b"b", offset=2))
        if len(uses) == 1:
            [range_] = (tmp_path / "fingerprints").glob("*")
            lose(range_)
        return keys_found(index, [b"a", b"b"])

    assert with_index(tmp_path, SLICE, use) == {b"a", b"b"}
    assert uses == [frozenset(), frozenset()]


@pytest.mark.parametrize(
    "error",
    [
        Exception("IO error: No space left on device: While appending to file: 000009.sst"),
        Exception("IO error: Too many open files: While open a file for random read: 000009.sst"),
        FileNotFoundError(2, "No such file or directory", "state.msgpack"),
    ],
)
def test_an_error_that_is_no_damage_leaves_it_as_it_is(tmp_path, error):
    index_with_event(tmp_path)

    def use(index):
        raise error

    with pytest.raises(type(error), match=re.escape(str(error))):
        with_index(tmp_path, SLICE, use)
    assert with_index(tmp_path, SLICE, lambda index: index.ingested.files) == {"one"}


def test_an_index_has_one_task_at_a_time(tmp_path):
    def use(index):
        with pytest.raises(TimeoutError, match=r"another task has .* open"):
            with_index(tmp_path, SLICE, lambda other: None, max_wait_seconds=0.2)

    with_index(tmp_path, SLICE, use)
    index_with_event(tmp_path)


class Crashed(BaseException):
    """Where a process would have been killed."""


STEPS = 63


@pytest.mark.parametrize("step", range(STEPS + 1))
def test_a_crash_at_any_step_leaves_an_index_that_is_known_and_right(tmp_path, monkeypatch, step):
    """Where a file has no mark it is recreated; elsewhere a kill would often cost that."""
    events = [EVENT._replace(key=b"%d" % n, offset=n) for n in range(12)]
    young = EVENT._replace(key=b"young", offset=50, time_us=EVENT.time_us + SLICE)
    steps, crashed = itertools.count(), []
    monkeypatch.setattr(EarlierIndex, "max_files_of_a_range", 3)

    def crashing(function):
        def called(*args, **options):
            if next(steps) == step:
                crashed.append(function)
                raise Crashed
            return function(*args, **options)

        return called

    def use(index):
        for number, event in enumerate([young, *events]):
            index.ingest({f"file {number}": sorted_files(KeyedEvents.of([event]), SLICE, Match.ID)})
        index.expire(young.time_us)

    index = EarlierIndex(tmp_path, SLICE)
    applied(index, "first", EVENT._replace(key=b"first"))
    with monkeypatch.context() as patches:
        patches.setattr(earlier_index, "replace_file", crashing(earlier_index.replace_file))
        patches.setattr(fingerprint_runs, "replace_file", crashing(fingerprint_runs.replace_file))
        for owner, names in (
            (FingerprintRuns, ("delete_replaced", "delete")),
            (RangeEntries, ("ingest", "merge_files", "delete")),
        ):
            for name in names:
                patches.setattr(owner, name, crashing(getattr(owner, name)))
        with pytest.raises(Crashed) if step < STEPS else contextlib.nullcontext():
            use(index)
    keys = {b"young": "file 0"} | {b"%d" % n: f"file {n + 1}" for n in range(len(events))}
    known = []

    def use_again(index):
        known.append("first" in index.ingested.files)
        named = {key for key, name in keys.items() if name in index.ingested.files}
        since_us = index.ingested.expired_us
        asked = named if since_us <= EVENT.time_us else named & {young.key}
        assert keys_found(index, [*keys], since_us) == asked
        use(index)
        assert keys_found(index, [young.key]) == {young.key}

    with_index(tmp_path, SLICE, use_again)
    assert known in ([True], [True, False], [False])
    assert all(known) or crashed == [earlier_index.replace_file]
    assert {*keys.values()} <= EarlierIndex(tmp_path, SLICE).ingested.files


def applied(index, name, *events):
    index.ingest({name: sorted_files(KeyedEvents.of(events), SLICE, Match.ID)})


def keys_found(index, keys, since_us=0):
    return set(index.find(keys, fingerprints(keys), since_us, 10**9))


def test_keys_with_the_same_fingerprint_are_told_apart(tmp_path):
    """CRC-32 gives both of these words 0x4ddb0c25."""
    index = EarlierIndex(tmp_path, SLICE)
    there, asked = EVENT._replace(key=b"plumless"), b"buckeroo"
    assert fingerprints([there.key]) == fingerprints([asked])
    applied(index, "one", there)
    assert keys_found(index, [there.key, asked]) == {there.key}


def test_many_files_of_a_slice_are_merged_and_nothing_is_lost(tmp_path):
    keys = [b"%d" % number for number in range(100)]
    for offset, key in enumerate(keys):
        index = EarlierIndex(tmp_path, SLICE)
        applied(index, f"file-{offset}", EVENT._replace(key=key, offset=offset))
    index = EarlierIndex(tmp_path, SLICE)
    assert keys_found(index, keys) == {*keys}
    assert len(list((tmp_path / "index").glob("*/*.sst"))) < 50


def test_an_expired_slice_leaves_the_disk_at_once(tmp_path):
    index = EarlierIndex(tmp_path, SLICE)
    old, young = EVENT, EVENT._replace(key=b"b", time_us=EVENT.time_us + SLICE)
    applied(index, "one", old, young)
    index.expire(young.time_us)
    assert keys_found(index, [b"a", b"b"]) == {b"b"}
    assert len(list((tmp_path / "index").glob("*/*.sst"))) == 1
    assert len(list((tmp_path / "fingerprints").glob("*"))) == 1
    index = EarlierIndex(tmp_path, SLICE)
    assert keys_found(index, [b"a", b"b"]) == {b"b"}


def test_files_whose_slices_are_gone_leave_an_index_that_is_known(tmp_path):
    """Else it would be recreated in each batch."""
    index = EarlierIndex(tmp_path, SLICE)
    index.expire(EVENT.time_us + SLICE)
    applied(index, "one", EVENT)
    index.expire(EVENT.time_us + SLICE)
    index = EarlierIndex(tmp_path, SLICE)
    assert index.ingested.files == {"one"}
    index.rename(frozenset())
    index = EarlierIndex(tmp_path, SLICE)
    assert index.ingested.files == set()


def test_an_index_that_another_task_has_open_is_waited_for(tmp_path):
    """Steps may use their rows twice, and Spark then reads them twice at the same time."""
    with ThreadPoolExecutor(1) as pool:

        def use(index):
            applied(index, "one", EVENT)
            second = pool.submit(with_index, tmp_path, SLICE, lambda it: keys_found(it, [b"a"]))
            with pytest.raises(TimeoutError):
                second.result(0.5)
            return second

        assert with_index(tmp_path, SLICE, use).result(LIMIT_SECONDS) == {b"a"}


def test_a_file_that_is_taken_again_changes_nothing(tmp_path):
    index = EarlierIndex(tmp_path, SLICE)
    for _ in range(2):
        applied(index, "one", EVENT)
    assert index.find([b"a"], fingerprints([b"a"]), 0, 5) == {b"a": EVENT}
    assert index.find([b"a"], fingerprints([b"a"]), 0, EVENT.offset) == {}


def test_a_backlog_that_spans_a_year_is_in_few_ranges_and_found(tmp_path):
    """An index with a column family for each of its minutes would take hours to make."""
    index = EarlierIndex(tmp_path, SLICE)
    events = [
        EVENT._replace(key=b"%d" % day, time_us=(day + 1) * 86_400_000_000, offset=day)
        for day in range(365)
    ]
    applied(index, "one", *events)
    assert len(list((tmp_path / "index").glob("*/*.sst"))) <= MAX_RANGES
    keys = [event.key for event in events]
    assert keys_found(index, keys) == {*keys}
    assert keys_found(index, keys, since_us=events[300].time_us) == {*keys[300:]}
    index.expire(events[300].time_us)
    assert keys_found(index, keys[300:]) == {*keys[300:]}
    assert not keys_found(index, keys[:200])


@pytest.mark.parametrize("spread", [0, 1, 40 * SLICE])
def test_the_last_event_is_the_last_one_of_all_ranges(tmp_path, spread):
    """Ranges of batches that span many slices lie over those of batches that do not."""
    index = EarlierIndex(tmp_path, SLICE)
    wide = [EVENT._replace(time_us=BEGIN + n * SLICE, offset=n) for n in range(40)]
    narrow = [EVENT._replace(time_us=BEGIN + n * SLICE + 5, offset=100 + n) for n in (3, 20, 39)]
    index.ingest({"wide": sorted_files(KeyedEvents.of(wide), SLICE, Match.LAST)})
    index.ingest({"narrow": sorted_files(KeyedEvents.of(narrow), SLICE, Match.LAST)})
    for later_us in range(BEGIN, BEGIN + 41 * SLICE, SLICE // 2):
        later = EVENT._replace(time_us=later_us + spread)
        before = [each for each in (*wide, *narrow) if each.time_us <= later.time_us]
        expected = max(before, key=lambda each: each.time_us)
        assert index.last([later], 0, 10**9) == [expected]
    assert index.last([EVENT._replace(time_us=BEGIN + SLICE)], BEGIN + 2 * SLICE, 10**9) == [None]


@pytest.mark.parametrize("match", Match)
def test_a_damaged_block_is_noticed_where_it_is_read_and_the_index_made_again(tmp_path, match):
    """An iterator of RocksDB ends at it as at the end of its entries."""
    events = [
        EVENT._replace(key=b"%d" % n, offset=n, value=random.Random(n).randbytes(1000))
        for n in range(300)
    ]
    files = sorted_files(KeyedEvents.of(events), SLICE, match)
    EarlierIndex(tmp_path, SLICE).ingest({"one": files})
    largest = max((tmp_path / "index").glob("*/*.sst"), key=lambda file: file.stat().st_size)
    content = bytearray(largest.read_bytes())
    for place in range(1000, len(content) * 3 // 4, 1000):
        content[place] ^= 1
    largest.write_bytes(content)
    opened = []

    def use(index):
        opened.append(index)
        if not index.ingested.files:
            index.ingest({"one": files})
        if match is Match.LAST:
            return index.last(events, 0, 10**9)
        keys = [event.key for event in events]
        return [*index.find(keys, fingerprints(keys), 0, 10**9).values()]

    found = with_index(tmp_path, SLICE, use)
    assert sorted(found) == sorted(events)
    assert len(opened) == 2


def damage_run(run):
    content = bytearray(run.read_bytes())
    content[len(content) // 2] ^= 1
    run.write_bytes(content)


def cut_run(run):
    run.write_bytes(run.read_bytes()[:-5])


@pytest.mark.parametrize("damage", [damage_run, cut_run])
def test_fingerprints_that_are_damaged_are_made_again_with_the_index(tmp_path, damage):
    """Else a key that is there would look as if it were not."""
    index_with_event(tmp_path)
    [run] = (tmp_path / "fingerprints").glob("*/*.run")
    damage(run)

    def use(index):
        if not index.ingested.files:
            applied(index, "one", EVENT)
        return keys_found(index, [b"a"])

    assert with_index(tmp_path, SLICE, use) == {b"a"}


def names(folder):
    return [each.name for each in folder.iterdir()]


def test_what_a_crash_left_of_a_range_that_was_dropped_is_deleted(tmp_path):
    """Entries have no ``CURRENT`` then; RocksDB would begin new ones beside their files."""
    index_with_event(tmp_path)
    folders = [tmp_path / "index", tmp_path / "fingerprints"]
    [range_] = names(folders[0])
    for folder in folders:
        shutil.copytree(folder / range_, folder / "1-1")
    (folders[0] / "1-1" / "CURRENT").unlink()
    EarlierIndex(tmp_path, SLICE)
    assert [names(folder) for folder in folders] == [[range_], [range_]]


def test_a_range_whose_folder_is_gone_expires_without_an_error(tmp_path):
    """As a cleaner of temporary files leaves it."""
    index_with_event(tmp_path)
    index = EarlierIndex(tmp_path, SLICE)
    lose_all(tmp_path)
    index.expire(EVENT.time_us + 2 * SLICE)
    assert keys_found(index, [b"a"]) == set()


def rewrite_marks(folder, change):
    path = folder / "marks.json"
    marks = json.loads(path.read_bytes())
    change(marks)
    path.write_text(json.dumps(marks))


def test_marks_of_an_earlier_layout_are_not_believed(tmp_path):
    """An earlier version that has run here in between has left entries behind."""
    index_with_event(tmp_path)
    rewrite_marks(tmp_path, lambda marks: marks.pop("layout"))
    assert not with_index(tmp_path, SLICE, lambda index: index.ingested.files)


def test_a_range_that_no_mark_names_is_deleted(tmp_path):
    """A crash came before its mark, so nothing says of which segments its events are."""
    index_with_event(tmp_path)
    rewrite_marks(tmp_path, lambda marks: marks["ranges"].clear())
    index = EarlierIndex(tmp_path, SLICE)
    assert keys_found(index, [b"a"]) == set()
    assert names(tmp_path / "index") == []


def test_files_of_an_index_in_one_database_are_deleted(tmp_path):
    """Versions before had the ranges in column families."""
    (tmp_path / "index").mkdir()
    for name in ("CURRENT", "000008.sst"):
        (tmp_path / "index" / name).touch()
    EarlierIndex(tmp_path, SLICE)
    assert names(tmp_path / "index") == []


@pytest.mark.parametrize("match", Match)
def test_a_batch_opens_the_ranges_that_it_needs_and_no_others(tmp_path, monkeypatch, match):
    """To open one takes RocksDB longer than to find an event."""
    index = EarlierIndex(tmp_path, SLICE)
    events = [EVENT._replace(key=b"%d" % n, offset=n, time_us=BEGIN + n * SLICE) for n in range(10)]
    index.ingest({"all": sorted_files(KeyedEvents.of(events), SLICE, match)})
    opened = []
    original = rocksdict.Rdict

    def noting(path, *arguments):
        opened.append(Path(path).name)
        return original(path, *arguments)

    monkeypatch.setattr(rocksdict, "Rdict", noting)
    index = EarlierIndex(tmp_path, SLICE)
    assert opened == []
    if match is Match.LAST:
        assert index.last([events[7]], 0, 10**9) == [events[7]]
    else:
        assert keys_found(index, [events[7].key, b"none"]) == {events[7].key}
    seventh = BEGIN // SLICE + 7
    assert opened == [f"{seventh}-{seventh}"]
    index.ingest(
        {"one": sorted_files(KeyedEvents.of([events[3]._replace(key=b"x")]), SLICE, match)}
    )
    assert opened[1:] == [f"{seventh - 4}-{seventh - 4}"]
    index.expire(BEGIN + 5 * SLICE)
    assert len(opened) == 2


@pytest.mark.parametrize("match", Match)
def test_events_come_out_as_they_were_wherever_their_key_is_in_their_value(tmp_path, match):
    """Of the value, the key is not kept twice."""
    values = {
        b"begins": b'begins, and begins again"',
        b"inside": b'{"id": "inside", "n": 1}',
        b"ends": b"where it ends",
        b"is": b"is",
        b"": b"an empty key",
        b"none": b"",
        b"far": b"." * 65_534 + b"far",
        b"farther": b"." * 65_535 + b"farther",
        b"\xff\x00": b"\x00\xff\x00\xff",
    }
    events = [
        KeyedEvent(key, time_us, offset, value)
        for offset, (key, value) in enumerate(values.items())
        for time_us in [BEGIN + 123_456 * offset + 7]
    ]
    index = EarlierIndex(tmp_path, SLICE)
    index.ingest({"one": sorted_files(KeyedEvents.of(events), SLICE, match)})
    if match is Match.LAST:
        held = index.last(events, 0, 10**9)
    else:
        held = [*index.find([*values], fingerprints([*values]), 0, 10**9).values()]
    assert sorted(held) == sorted(events)


def test_a_range_says_where_its_newest_event_is():
    """By it a file is kept, and not until the end of a range that spans a day."""
    events = [EVENT._replace(time_us=BEGIN + n * SLICE, offset=n) for n in range(1000)]
    files = sorted_files(KeyedEvents.of(events), SLICE, Match.LAST)
    assert len(files) <= MAX_RANGES
    assert max(file.newest for file in files) == BEGIN // SLICE + 999
    assert all(file.first <= file.newest <= file.last for file in files)
