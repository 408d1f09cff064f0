"""The load: each line once, whatever fails, however files are named, copied and cut."""

import gzip
import os
import shutil
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.avro_files import block, container
from tests.offline_lines import line, write

from headrace.errors import CounterReusedError, SinkError
from headrace.offline_files.done_files import remove_file
from headrace.offline_files.files import FileIdentity, FileOrder, read_file

from .conftest import Memory


@pytest.fixture
def folder(tmp_path):
    """Ten lines in three files."""
    write(tmp_path / "offline.1", *map(line, range(4)))
    write(tmp_path / "offline.2", *map(line, range(4, 7)))
    write(tmp_path / "offline.10", *map(line, range(7, 10)))
    return tmp_path


def test_lines_are_loaded_in_order_in_batches(folder, memory):
    figures = memory.load(folder, batch=4)
    assert memory.counters == list(range(10))
    assert memory.batches == [4, 4, 2]
    assert (figures.files, figures.lines, figures.loaded) == (3, 10, {"raw_item": 10})
    assert memory.closed == 1


def test_a_second_load_skips_everything(folder, memory):
    memory.load(folder)
    figures = memory.load(folder)
    assert (figures.skipped, figures.loaded) == (10, {})
    assert memory.counters == list(range(10))


def test_files_copied_renamed_compressed_and_reordered_are_the_same_lines(folder, memory):
    memory.load(folder)
    shutil.copy(folder / "offline.1", folder / "copy")
    (folder / "offline.2").rename(folder / "zzz")
    (folder / "offline.3").write_bytes(gzip.compress((folder / "offline.10").read_bytes()))
    write(folder / "offline.11", line(10))
    figures = memory.load(folder)
    assert memory.counters == list(range(11))
    assert figures.skipped == 17


def test_a_counter_twice_in_a_batch_is_loaded_once(tmp_path, memory):
    write(tmp_path / "offline.1", line(1), line(1), b"bad", b"bad")
    assert memory.load(tmp_path, batch=100).skipped == 2
    assert (memory.counters, len(memory.letters)) == ([1], 1)


@pytest.mark.parametrize("batch", [1, 2, 100])
def test_other_lines_with_the_same_counters_are_rejected_not_skipped(folder, memory, batch):
    memory.load(folder)
    (other := folder / "other").mkdir()
    write(other / "offline.1", *(line(n, host="b") for n in range(3)))
    with pytest.raises(CounterReusedError) as caught:
        memory.load(other, batch=batch)
    assert caught.value.counter == 0
    write(other / "offline.1", line(20), line(20, host="b"))
    with pytest.raises(CounterReusedError):
        memory.load(other, batch=batch)


def test_bad_lines_are_dead_letters_once_and_stop_nothing(tmp_path, memory):
    write(tmp_path / "offline.1", line(1), b"no json", line(2, body="?"), line(3), b"{}")
    for _ in range(2):
        memory.load(tmp_path)
        assert memory.counters == [1, 3]
        assert [one.reason for one in memory.letters] == ["not-json", "bad-base64", "no-counter"]


def test_what_the_destination_rejects_is_counted_by_its_reason(folder, memory):
    memory.rejects = lambda one: one.counter % 2 == 1
    figures = memory.load(folder)
    assert (figures.dead, figures.loaded) == ({"no": 5}, {"raw_item": 5})


def test_the_half_written_end_of_the_newest_file_waits_for_the_next_run(tmp_path, memory):
    write(tmp_path / "offline.1", line(1), line(2)[:20], end=b"")
    assert memory.load(tmp_path).left == 1
    assert (memory.counters, memory.letters) == ([1], [])
    write(tmp_path / "offline.1", line(1), line(2), end=b"")
    assert memory.load(tmp_path).left == 0
    assert memory.counters == [1, 2]


def test_the_torn_end_of_an_older_file_is_a_dead_letter(tmp_path, memory):
    write(tmp_path / "offline.1", line(1), line(2)[:20], end=b"")
    write(tmp_path / "offline.2", line(3))
    memory.load(tmp_path)
    assert [one.reason for one in memory.letters] == ["torn-line"]
    assert memory.progress.holes == [(2, 3)]


def test_files_out_of_order_are_noticed(folder, memory):
    for modified, name in enumerate(("offline.10", "offline.1", "offline.2")):
        os.utime(folder / name, (modified, modified))
    figures = memory.load(folder, order=FileOrder.MODIFIED)
    assert figures.backwards == 7
    assert sorted(memory.counters) == list(range(10))
    assert not memory.progress.holes


def test_done_files_are_removed_when_asked_for_but_never_the_newest(folder, memory):
    memory.load(folder, batch=100, remove=True)
    assert [one.name for one in folder.iterdir()] == ["offline.10"]
    assert memory.counters == list(range(10))


@pytest.mark.parametrize("share", [0, 0.5], ids=["behind a line", "within a line"])
def test_a_gzip_file_that_is_cut_off_is_said_and_not_removed(tmp_path, memory, share):
    packer = zlib.compressobj(wbits=31)
    first = packer.compress(line(0) + b"\n") + packer.flush(zlib.Z_SYNC_FLUSH)
    rest = packer.compress(line(1, text=os.urandom(50).hex()) + b"\n") + packer.flush()
    (tmp_path / "offline.1").write_bytes(first + rest[: int(len(rest) * share)])
    write(tmp_path / "offline.2", line(2))
    for _ in range(2):
        memory.load(tmp_path, remove=True)
        assert [one.reason for one in memory.letters][-1] == "damaged-file"
    assert memory.counters == [0, 2]
    assert len(memory.letters) == 1 + bool(share)
    assert (tmp_path / "offline.1").exists()


def avro(*counters, **columns):
    """A block of lines with counters."""
    rows = [{"project_id": 1, "note": "n"} | columns for _ in counters]
    return [
        {"table": "raw_item", "row": row, "counter": counter}
        for row, counter in zip(rows, counters, strict=True)
    ]


LINE = {
    "type": "record",
    "name": "Line",
    "fields": [
        {"name": "table", "type": "string"},
        {
            "name": "row",
            "type": {
                "type": "record",
                "name": "Row",
                "fields": [
                    {"name": "project_id", "type": "long"},
                    {"name": "note", "type": "string"},
                ],
            },
        },
        {"name": "counter", "type": "long"},
    ],
}


def test_records_of_avro_files_are_lines_and_a_damaged_block_is_a_dead_letter(tmp_path, memory):
    good = container(LINE, avro(1, 2))
    (tmp_path / "1.avro").write_bytes(
        good + block(LINE, avro(3, 4), count=5) + block(LINE, avro(8))
    )
    (tmp_path / "2.avro").write_bytes(container(LINE, avro(9), codec="snappy"))
    figures = memory.load(tmp_path, remove=True)
    assert memory.counters == [1, 2, 8, 9]
    assert memory.entries[0].row == {"project_id": b"1", "note": b'"n"'}
    [letter] = memory.letters
    assert (letter.line.file, letter.line.number) == ("1.avro", 3)
    assert (letter.reason, figures.dead) == ("damaged-block", {"damaged-block": 1})
    assert f"the block at byte {len(good)}, of 5 record(s)" in letter.detail
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.avro", "2.avro"]
    assert memory.load(tmp_path).skipped == 5


def test_an_avro_file_that_is_cut_off_waits_if_it_is_the_newest(tmp_path, memory):
    whole = container(LINE, avro(1), avro(2))
    (tmp_path / "1.avro").write_bytes(whole[:-1])
    figures = memory.load(tmp_path)
    assert (memory.counters, figures.left, memory.letters) == ([1], 1, [])
    (tmp_path / "2.avro").write_bytes(container(LINE, avro(3)))
    memory.load(tmp_path)
    [letter] = memory.letters
    assert (letter.line.file, letter.reason) == ("1.avro", "damaged-file")
    assert "the file ends within what begins at byte" in letter.detail
    assert memory.counters == [1, 3]


@pytest.mark.parametrize("batch", [1, 100])
def test_a_line_with_two_counters_claims_none_of_another_line(tmp_path, memory, batch):
    twice = line(1).replace(b'"counter": 1', b'"counter": 1, "counter": 4')
    write(tmp_path / "offline.1", line(0), twice, *map(line, range(2, 6)))
    for skipped in (0, 6):
        assert memory.load(tmp_path, batch=batch).skipped == skipped
    assert memory.counters == [0, 2, 3, 4, 5]
    assert [(one.counter, one.reason) for one in memory.letters] == [(None, "repeated-key")]


def test_a_file_of_which_a_part_can_not_be_read_is_not_removed(folder, memory, monkeypatch):
    packed = bytearray(gzip.compress((folder / "offline.2").read_bytes()))
    packed[-6] ^= 1
    (folder / "offline.2").write_bytes(packed)
    monkeypatch.setattr("headrace.offline_files.files.MAX_LINE_BYTES", 200)
    write(folder / "offline.3", line(20), b"x" * 300)
    memory.load(folder, remove=True)
    assert {one.reason for one in memory.letters} == {"damaged-file", "line-too-long"}
    assert {one.name for one in folder.iterdir()} == {"offline.2", "offline.3", "offline.10"}


@pytest.fixture
def after_reading(monkeypatch):
    """``after_reading(name, act)``: what another process does once the file is read."""

    def registered(name, act):
        def reading(file, *arguments):
            yield from read_file(file, *arguments)
            if file.path.name == name:
                act()

        monkeypatch.setattr("headrace.offline_files.loading.read_file", reading)

    return registered


def test_a_file_that_took_the_name_of_one_that_was_read_is_not_removed(
    folder, memory, after_reading
):
    def rotate():
        (folder / "offline.1").rename(folder / "offline.0")
        write(folder / "offline.1", line(100))

    after_reading("offline.1", rotate)
    memory.load(folder, batch=100, remove=True)
    assert {one.name for one in folder.iterdir()} == {"offline.0", "offline.1", "offline.10"}
    memory.load(folder, batch=100, remove=True)
    assert sorted(memory.counters) == [*range(10), 100]


def test_a_file_that_was_written_to_while_it_was_read_is_not_removed(folder, memory, after_reading):
    def append():
        with (folder / "offline.1").open("ab") as file:
            file.write(line(100) + b"\n")

    after_reading("offline.1", append)
    memory.load(folder, batch=100, remove=True)
    assert {one.name for one in folder.iterdir()} == {"offline.1", "offline.10"}
    memory.load(folder, batch=100, remove=True)
    assert sorted(memory.counters) == [*range(10), 100]


def test_a_file_that_came_just_before_the_removal_gets_its_name_back(tmp_path, monkeypatch):
    path, other = write(tmp_path / "file", b"read"), write(tmp_path / "other", b"never read")
    identity = FileIdentity.of(path.stat())
    rename = Path.rename

    def late(self, target):
        other.replace(path)
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", late)
    assert not remove_file(path, identity)
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [
        ("file", b"never read\n")
    ]


def test_a_file_never_takes_a_name_that_is_in_use(tmp_path, monkeypatch):
    path, other = write(tmp_path / "file", b"read"), write(tmp_path / "other", b"never read")
    identity = FileIdentity.of(path.stat())
    rename = Path.rename

    def late(self, target):
        other.replace(path)
        rename(self, target)
        write(path, b"newer")

    monkeypatch.setattr(Path, "rename", late)
    assert not remove_file(path, identity)
    assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == {
        "file": b"newer\n",
        "file.done": b"never read\n",
    }
    monkeypatch.undo()
    assert not remove_file(path, FileIdentity.of(path.stat()))


def test_no_file_is_removed_before_its_lines_are_written(folder, memory):
    memory.fails = ["", "", "before", "before", "before", "before"]
    with pytest.raises(SinkError):
        memory.load(folder, batch=3, remove=True)
    assert memory.counters == list(range(6))
    assert {one.name for one in folder.iterdir()} == {"offline.2", "offline.10"}


def test_a_destination_that_stays_away_is_an_error_that_says_why(folder, memory):
    memory.fails = ["before"] * 10
    with pytest.raises(SinkError, match="gone"):
        memory.load(folder)
    assert memory.closed == 1


@settings(max_examples=40)
@given(
    fails=st.lists(st.sampled_from(["", "before", "after"]), max_size=6),
    batch=st.integers(1, 6),
    bad=st.sets(st.integers(0, 9)),
)
def test_each_line_is_there_once_whatever_fails(tmp_path_factory, fails, batch, bad):
    folder = tmp_path_factory.mktemp("offline")
    contents = [line(n, body="?") if n in bad else line(n) for n in range(10)]
    write(folder / "offline.1", *contents[:5])
    write(folder / "offline.2", *contents[5:])
    memory = Memory()
    memory.fails = fails
    memory.retry_delays_seconds = (0,) * 8
    figures = memory.load(folder, batch=batch)
    assert memory.counters == [n for n in range(10) if n not in bad]
    assert sorted(one.counter for one in memory.letters) == sorted(bad)
    assert figures.loaded.total() == 10 - len(bad)
    assert figures.dead.total() == len(bad)
    assert figures.skipped == 0
