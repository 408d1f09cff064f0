"""What an instance that begins with a partition reads of its snapshots."""

from __future__ import annotations

import logging
import zlib

import msgspec
import pytest

from headrace.errors import SnapshotDamagedError
from headrace.model import TopicPartition
from headrace.queries.records.snapshots import (
    SnapshotPosition,
    WindowPart,
    WindowSnapshot,
    encode_silence,
    encode_snapshot,
)
from headrace.queries.windows.instance import restoring
from headrace.queries.windows.instance.restoring import read_snapshots

PLACE = TopicPartition("ads.snapshots", 0)
WINDOW = {"query": "a", "registered_ms": 0, "revision": 1, "begin_us": 0, "text_hash": "hash"}
SNAPSHOT = WindowSnapshot(
    **WINDOW,
    offset=3,
    text="SELECT count(*) FROM clicks",
    changed_ms=1,
    emitted_ms=2,
    emission=3,
    events=1,
    groups=[((), (1,))],
    other=None,
)
POSITION = msgspec.json.encode(SnapshotPosition(offset=7, base=0, event_us={}, late={}))


class Record:
    def __init__(self, offset, value):
        self._offset, self._value = offset, value

    def offset(self):
        return self._offset

    def value(self):
        return self._value


@pytest.fixture
def read(monkeypatch):
    """Reads snapshots with these values."""

    def read(*values):
        records = [Record(offset, value) for offset, value in enumerate(values)]
        monkeypatch.setattr(restoring, "earliest_offsets", lambda *_: {PLACE: 0})
        monkeypatch.setattr(restoring, "high_watermarks", lambda *_: {PLACE: len(records)})
        monkeypatch.setattr(restoring, "read_records", lambda *_, **__: iter(records))
        return read_snapshots({}, PLACE)

    return read


@pytest.mark.parametrize("foreign", [b"{", b"\xff", b"", b"7", b'{"kind": "unknown"}'])
def test_a_record_of_another_program_is_left_out_and_told(read, foreign, caplog):
    silence = next(encode_silence({"b": (5, True)}))
    restored = read(*encode_snapshot(SNAPSHOT), foreign, POSITION, foreign, None, silence)
    assert list(restored.windows.values()) == [SNAPSHOT]
    assert restored.position.offset == 7
    assert restored.silence == {"b": (5, True)}
    errors = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert [line.partition(" is left out")[0] for line in errors] == [
        "Record 1 of ads.snapshots[0]",
        "Record 3 of ads.snapshots[0]",
    ]


def test_a_snapshot_that_is_whole_and_of_another_form_is_damaged(read):
    text = b'{"query": "a"}'
    part = WindowPart(**WINDOW, number=0, parts=1, crc32=zlib.crc32(text), text=text.decode())
    with pytest.raises(SnapshotDamagedError):
        read(msgspec.json.encode(part), POSITION)
