"""Files in the order of their creation, and their lines."""

import gzip
import os
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import OfflineFilesError
from headrace.offline_files import files
from headrace.offline_files.files import End, FileOrder, OfflineFile, find_files, natural, read_file


def names(folder, order=FileOrder.NAME, pattern="*"):
    return [one.path.name for one in find_files(folder, order, pattern)]


def lines(path, *, newest=False, **options):
    found = read_file(OfflineFile(path, newest), **options)
    return [(one.number, one.content, one.end) for one in found]


def plain(*contents):
    return [(number, content, End.NEWLINE) for number, content in enumerate(contents, 1)]


@pytest.mark.parametrize("wrap", [bytes, gzip.compress])
@pytest.mark.parametrize("step_bytes", [1, 2, 65_536])
def test_a_byte_order_mark_before_the_first_line_is_no_part_of_it(tmp_path, wrap, step_bytes):
    path = tmp_path / "offline.1"
    path.write_bytes(wrap(b"\xef\xbb\xbf{}\r\n\xef\xbb\xbf\n"))
    assert lines(path, step_bytes=step_bytes) == plain(b"{}", b"\xef\xbb\xbf")


def test_numbers_in_names_count_as_numbers(tmp_path):
    for name in ("offline.10", "offline.9", "offline.100.gz", "offline.2019-11-28T13:35:56"):
        (tmp_path / name).touch()
    assert names(tmp_path) == [
        "offline.9",
        "offline.10",
        "offline.100.gz",
        "offline.2019-11-28T13:35:56",
    ]


def test_the_time_of_the_last_write_is_the_other_order(tmp_path):
    for name, modified in (("a", 3), ("b", 1), ("c", 1), ("d", 2)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (modified, modified))
    assert names(tmp_path, FileOrder.MODIFIED) == ["b", "c", "d", "a"]


def test_the_last_file_is_the_newest(tmp_path):
    for name in "ab":
        (tmp_path / name).touch()
    assert [one.newest for one in find_files(tmp_path, FileOrder.NAME)] == [False, True]


def test_hidden_files_folders_and_other_patterns_are_left_out(tmp_path):
    for name in (".swap", "offline.1", "README"):
        (tmp_path / name).touch()
    (tmp_path / "offline.2").mkdir()
    assert names(tmp_path, pattern="offline.*") == ["offline.1"]
    assert names(tmp_path) == ["README", "offline.1"]


def test_a_folder_that_is_missing_empty_or_none_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OfflineFilesError, match="no file 'x' is in it"):
        find_files(tmp_path, FileOrder.NAME, "x")
    with pytest.raises(OfflineFilesError, match="No such file or directory"):
        find_files(tmp_path / "nowhere", FileOrder.NAME)
    with pytest.raises(OfflineFilesError, match="Not a directory"):
        find_files(tmp_path / "file", FileOrder.NAME)


def test_a_file_that_went_away_is_named(tmp_path):
    with pytest.raises(OfflineFilesError, match="gone"):
        lines(tmp_path / "gone")


@given(st.lists(st.integers(0, 10**9), min_size=2), st.sampled_from(["", "offline.", "a-b_"]))
def test_files_numbered_anyhow_are_in_the_order_of_their_numbers(numbers, prefix):
    found = sorted((f"{prefix}{number}.gz" for number in numbers), key=natural)
    assert found == [f"{prefix}{number}.gz" for number in sorted(numbers)]


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_lines_are_numbered_and_blank_ones_are_not_lines(tmp_path, pack):
    path = tmp_path / "file"
    path.write_bytes(pack(b"one\n\n  \r\ntwo\r\nthree"))
    assert lines(path) == [
        (1, b"one", End.NEWLINE),
        (4, b"two", End.NEWLINE),
        (5, b"three", End.FILE),
    ]


@given(
    st.lists(st.binary(max_size=40).map(lambda one: b"." + one.replace(b"\n", b"")), max_size=30)
)
def test_what_is_written_is_read_wherever_pieces_end(tmp_path_factory, contents):
    path = tmp_path_factory.mktemp("lines") / "file"
    contents = [one.strip(b" \t\r\n") for one in contents]
    path.write_bytes(b"".join(one + b"\n" for one in contents))
    assert lines(path, step_bytes=7) == plain(*contents)
    path.write_bytes(gzip.compress(path.read_bytes()) or b"")
    assert lines(path, step_bytes=7) == plain(*contents)


def test_every_member_of_a_gzip_file_is_read(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(gzip.compress(b"one\ntw") + gzip.compress(b"o\n") + b"\0" * 512)
    assert lines(path) == plain(b"one", b"two")


@pytest.mark.parametrize("padding", [1, 4, 512, 65_536, 200_000])
def test_padding_between_members_hides_none_wherever_pieces_end(tmp_path, padding):
    """The name in the first member's header makes it, with its padding, end where a piece ends."""
    first = gzip.compress(b"one\n")
    room = files.STEP_BYTES - len(first) - padding % files.STEP_BYTES
    named = first[:3] + b"\x08" + first[4:10] + b"x" * (room - 1) + b"\0" + first[10:]
    path = tmp_path / "file"
    path.write_bytes(named + b"\0" * padding + gzip.compress(b"two\n") + b"\0" * padding)
    assert lines(path) == plain(b"one", b"two")


def test_a_gzip_file_that_is_cut_off_is_damaged_there(tmp_path):
    path = tmp_path / "file"
    content = b"".join(b"%d %s\n" % (n, os.urandom(50).hex().encode()) for n in range(2000))
    path.write_bytes(gzip.compress(content)[:-1000])
    *whole, torn, rest = lines(path)
    assert [one[1] for one in whole] == content.split(b"\n")[: len(whole)]
    assert torn[2] is End.FILE
    assert rest == (torn[0] + 1, b"", End.DAMAGE)


def test_a_gzip_file_without_its_trailer_is_cut_off_unless_it_may_still_grow(tmp_path):
    path = tmp_path / "file"
    packer = zlib.compressobj(wbits=31)
    path.write_bytes(packer.compress(b"one\ntwo\n") + packer.flush(zlib.Z_SYNC_FLUSH))
    assert lines(path) == [*plain(b"one", b"two"), (3, b"", End.DAMAGE)]
    assert lines(path, newest=True) == plain(b"one", b"two")


def test_a_gzip_file_that_is_damaged_says_where(tmp_path):
    path = tmp_path / "file"
    packed = bytearray(gzip.compress(b"".join(b"%d\n" % n for n in range(20_000))))
    packed[-6] ^= 1  # its checksum
    path.write_bytes(packed)
    found = lines(path)
    assert found[-1][2] is End.DAMAGE
    assert found[:-1] == plain(*(b"%d" % n for n in range(len(found) - 1)))


def test_of_a_line_without_end_only_the_beginning_is_held(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 10)
    path = tmp_path / "file"
    path.write_bytes(b"one\n" + b"x" * 1000 + b"\n" + b"y" * 11 + b"\ntwo\n")
    assert lines(path, step_bytes=16) == [
        (1, b"one", End.NEWLINE),
        (2, b"x" * 10, End.TOO_LONG),
        (3, b"y" * 10, End.TOO_LONG),
        (4, b"two", End.NEWLINE),
    ]


def test_a_compressed_file_of_nothing_but_one_line_takes_bounded_memory(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(gzip.compress(bytes(64 * 1024 * 1024), 9))
    (line,) = read_file(OfflineFile(path, newest=False))
    assert (line.end, len(line.content)) == (End.TOO_LONG, files.MAX_LINE_BYTES)
