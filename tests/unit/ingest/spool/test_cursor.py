"""The loader's cursor over kills and power failures."""

import os

import pytest

from headrace.ingest.spool.cursor import CursorFile, SpoolCursor


@pytest.fixture
def calls(monkeypatch):
    """Which calls to the system were made, in order."""
    made = []
    for name in ("pwrite", "fdatasync"):
        real = getattr(os, name)

        def call(*arguments, _name=name, _real=real):
            made.append(_name)
            return _real(*arguments)

        monkeypatch.setattr(os, name, call)
    return made


def test_what_a_killed_process_wrote_is_on_the_disk_before_the_other_slot_is_written(
    tmp_path, calls
):
    CursorFile(tmp_path / "position").write(SpoolCursor(5))
    calls.clear()
    cursor_file = CursorFile(tmp_path / "position")
    cursor_file.write(SpoolCursor(6))
    cursor_file.write(SpoolCursor(7))
    assert calls == ["fdatasync", "pwrite", "fdatasync", "pwrite", "fdatasync"]
    assert cursor_file.read() == SpoolCursor(7)


def test_after_a_disk_that_failed_the_other_slot_waits_for_the_one_that_was_not_confirmed(
    tmp_path, calls, monkeypatch
):
    cursor_file = CursorFile(tmp_path / "position")
    cursor_file.write(SpoolCursor(5))
    with monkeypatch.context() as failing:
        failing.setattr(os, "fdatasync", lambda _: (_ for _ in ()).throw(OSError("I/O error")))
        with pytest.raises(OSError, match="I/O"):
            cursor_file.write(SpoolCursor(6))
    calls.clear()
    cursor_file.write(SpoolCursor(7))
    assert calls == ["fdatasync", "pwrite", "fdatasync"]
