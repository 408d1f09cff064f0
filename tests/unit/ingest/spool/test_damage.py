"""Damage: no crash, valid records survive, bad ones are quarantined and counted."""

import json
import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.ingest.spool.kafka import taking

from headrace.ingest.spool.frames import frames
from headrace.ingest.spool.loader import Loader
from headrace.ingest.spool.record import SpoolRecord
from headrace.ingest.spool.segment import HEADER_BYTES, created_ms, header, segments
from headrace.ingest.spool.spool import Spool, SpoolLimits

TEXTS = ["a", "bb", "ccc", "dddd"]


def made(text):
    return SpoolRecord("t", None, text.encode(), (), 0, None)


def filled(folder):
    """A spool with one segment of four appends, closed; its only segment."""
    spool = Spool(folder, SpoolLimits())
    for text in TEXTS:
        spool.append([made(text)])
    spool.close()
    return next(iter(folder.glob("*.segment")))


def drained(folder):
    """What a new process finds and replays; its report; the quarantined files."""
    spool, sent = Spool(folder, SpoolLimits()), []
    loader = Loader(spool, taking(sent.extend))
    report = loader.run_once()
    assert not spool.pending
    spool.append([made("after")])
    assert loader.run_once().records == 1
    assert sent.pop().value == b"after"
    assert spool.stats().quarantined == report.quarantined
    assert spool.stats().missing == report.missing
    loader.close()
    spool.close()
    return [one.value.decode() for one in sent], report


@pytest.fixture
def damaged(folder, tmp_path):
    """Copies a sound spool, replaces its segment's bytes by those given, and drains it."""
    path = filled(folder)
    sound = path.read_bytes()
    copy = tmp_path / "copy"

    def draining(content):
        shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("state"))
        (copy / path.name).write_bytes(content)
        found = drained(copy)
        shutil.rmtree(copy)
        return found

    return sound, draining


def ends(sound):
    """Offsets behind each of the four records."""
    overhead = (len(sound) - HEADER_BYTES - sum(map(len, TEXTS))) // len(TEXTS)
    found, at = [], HEADER_BYTES
    for text in TEXTS:
        at += overhead + len(text)
        found.append(at)
    return found


def test_a_tail_torn_at_any_byte_costs_only_what_is_not_there(damaged):
    sound, draining = damaged
    for length in range(len(sound)):
        whole = sum(end <= length for end in ends(sound))
        sent, report = draining(sound[:length])
        assert sent == TEXTS[:whole]
        rest = length - max([HEADER_BYTES, *(end for end in ends(sound) if end <= length)])
        assert report.quarantined == (rest > 0)
        assert report.missing == 0


def test_a_bit_flipped_at_any_byte_costs_at_most_its_record(damaged):
    sound, draining = damaged
    for place in range(len(sound)):
        content = bytearray(sound)
        content[place] ^= 1 << place % 8
        sent, report = draining(bytes(content))
        hit = sum(end <= place for end in ends(sound))
        lost = [] if place < HEADER_BYTES else [TEXTS[hit]]
        assert sent == [text for text in TEXTS if text not in lost]
        assert report.quarantined == 1
        # The last record's counter is given to the next: nothing else ever said it was there.
        assert report.missing == (len(lost) if hit < len(TEXTS) - 1 else 0)


def test_a_damaged_record_at_the_end_of_an_append_is_known_to_be_missing(folder):
    spool = Spool(folder, SpoolLimits())
    spool.append([made(text) for text in TEXTS])
    spool.close()
    path = next(iter(folder.glob("*.segment")))
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    sent, report = drained(folder)
    assert sent == TEXTS[:-1]
    assert (report.quarantined, report.missing) == (1, 1)


def test_an_append_that_is_not_all_there_is_not_replayed(folder):
    spool = Spool(folder, SpoolLimits())
    spool.append([made("acknowledged")])
    spool.append([made(text) for text in TEXTS])
    spool.close()
    path = next(iter(folder.glob("*.segment")))
    path.write_bytes(path.read_bytes()[:-1])
    (folder / "state").unlink()
    sent, report = drained(folder)
    assert sent == ["acknowledged"]
    assert report.missing == 0


def test_damage_while_the_spool_is_open_is_quarantined_with_what_is_known(folder):
    spool, sent = Spool(folder, SpoolLimits()), []
    spool.append([made(text) for text in TEXTS])
    path = next(iter(folder.glob("*.segment")))
    content = bytearray(path.read_bytes())
    content[HEADER_BYTES + 9] ^= 1
    path.write_bytes(content)
    report = Loader(spool, taking(sent.extend)).run_once()
    assert [one.value.decode() for one in sent] == TEXTS[1:]
    assert (report.quarantined, report.missing) == (1, 1)
    known, _, kept = next(iter((folder / "quarantine").iterdir())).read_bytes().partition(b"\n")
    assert json.loads(known) == {"segment": path.name, "offset": HEADER_BYTES, "bytes": len(kept)}
    assert kept == content[HEADER_BYTES : HEADER_BYTES + len(kept)]


def several(folder):
    spool = Spool(folder, SpoolLimits(segment_bytes=1))
    for text in TEXTS:
        spool.append([made(text)])
    spool.close()
    return sorted(folder.glob("*.segment"))


@pytest.mark.parametrize("which", range(4))
def test_a_missing_segment_is_counted(folder, which):
    several(folder)[which].unlink()
    sent, report = drained(folder)
    assert sent == [text for place, text in enumerate(TEXTS) if place != which]
    assert (report.missing, report.quarantined) == (1, 0)


@pytest.mark.parametrize("which", range(4))
def test_a_segment_without_a_byte_is_removed_and_its_records_counted(folder, which):
    path = several(folder)[which]
    path.write_bytes(b"")
    sent, report = drained(folder)
    assert sent == [text for place, text in enumerate(TEXTS) if place != which]
    assert (report.missing, report.quarantined) == (1, 0)


@pytest.mark.parametrize("which", range(4))
def test_a_segment_of_another_version_is_quarantined_whole(folder, which):
    path = several(folder)[which]
    content = path.read_bytes()
    path.write_bytes(header(0, version=2) + content[HEADER_BYTES:])
    sent, report = drained(folder)
    assert sent == [text for place, text in enumerate(TEXTS) if place != which]
    assert report.quarantined == 1
    assert (folder / "quarantine" / path.name).exists()


def test_a_frame_that_is_sound_and_no_record_is_quarantined(folder):
    path = filled(folder)
    segment = segments(folder)[0]
    with path.open("ab") as file:
        file.write(frames([b"\xc1 not MessagePack"], segment.marker, len(TEXTS) + 1))
    sent, report = drained(folder)
    assert sent == TEXTS
    assert (report.quarantined, report.missing) == (1, 1)


def test_with_no_room_for_copies_the_whole_segment_is_moved(folder, monkeypatch):
    path = filled(folder)
    content = bytearray(path.read_bytes())
    content[HEADER_BYTES] ^= 1
    path.write_bytes(content)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("headrace.ingest.spool.quarantine.write_durably", full)
    sent, _ = drained(folder)
    assert sent == TEXTS[1:]
    assert (folder / "quarantine" / path.name).read_bytes() == content


def test_a_position_that_can_not_be_read_repeats_and_loses_nothing(folder):
    several(folder)
    spool, sent = Spool(folder, SpoolLimits()), []
    calls = []

    def twice(records):
        calls.append(1)
        if len(calls) > 2:
            raise ConnectionError("gone")
        sent.extend(records)

    loader = Loader(spool, taking(twice))
    with pytest.raises(ConnectionError):
        loader.run_once()
    loader.close()
    spool.close()
    (folder / "position").write_bytes(b"\xff" * 1024)
    again, report = drained(folder)
    assert [one.value.decode() for one in sent] == TEXTS[:2]
    assert set(TEXTS[2:]) <= set(again) <= set(TEXTS)
    assert report.missing == 0


@pytest.mark.parametrize("name", ["state", "position"])
@pytest.mark.parametrize("content", [b"", b"\xff" * 4096, b"\0" * 4096])
def test_files_beside_the_segments_may_hold_anything(folder, name, content):
    several(folder)
    (folder / name).write_bytes(content)
    assert drained(folder)[0] == TEXTS


@settings(max_examples=150)
@given(st.data())
def test_whatever_a_segment_holds_only_what_was_appended_is_replayed(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("fuzz") / "spool"
    path = filled(folder)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(content)))
        end = data.draw(st.integers(start, len(content)))
        content[start:end] = data.draw(st.binary(max_size=80))
    path.write_bytes(content)
    sent, _ = drained(folder)
    assert set(sent) <= set(TEXTS)
    assert sent == sorted(sent)


@given(st.binary(max_size=200))
def test_random_bytes_are_no_header(begin):
    assert created_ms(begin) is None
