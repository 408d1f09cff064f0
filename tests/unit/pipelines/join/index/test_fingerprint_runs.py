"""Runs hold what was added, and little that was not asked for is read."""

import numpy as np
import pytest

from headrace.pipelines.join.events import FINGERPRINT
from headrace.pipelines.join.index import fingerprint_runs
from headrace.pipelines.join.index.fingerprint_runs import (
    DamagedRunError,
    FingerprintRuns,
    merged_prints,
    packed,
    unpacked,
)

LAST = 2**32 - 1


def prints(numbers):
    return np.unique(np.array(numbers, FINGERPRINT))


def runs_in(folder):
    """Returns runs with small blocks."""
    return FingerprintRuns(folder, block=4)


@pytest.mark.parametrize("seed", range(20))
def test_they_hold_what_was_added_and_nothing_else(tmp_path, seed):
    rng = np.random.default_rng(seed)
    runs, added = runs_in(tmp_path / "runs"), set()
    for _ in range(rng.integers(1, 40)):
        batch = rng.integers(0, 400, rng.integers(1, 30)).tolist()
        batch += [number for number in (0, LAST) if rng.random() < 0.05]
        runs.add(prints(batch))
        added.update(batch)
        asked = prints([*rng.integers(0, 400, rng.integers(1, 60)).tolist(), 0, LAST])
        assert asked[runs.hold(asked)].tolist() == sorted(added.intersection(asked.tolist()))
    assert len(runs.files) <= 8
    runs.delete()
    assert not runs.hold(prints([1])).any()


def test_a_fingerprint_is_written_again_only_as_the_runs_double(tmp_path, monkeypatch):
    written = []

    def merged(parts):
        run = merged_prints(parts)
        written.append(len(run))
        return run

    monkeypatch.setattr(fingerprint_runs, "merged_prints", merged)
    runs = runs_in(tmp_path / "runs")
    for batch in range(256):
        runs.add(np.arange(batch * 16, batch * 16 + 16, dtype=FINGERPRINT))
    assert sum(written) < 256 * 16 * 10
    assert runs.hold(np.arange(256 * 16, dtype=FINGERPRINT)).all()


def test_a_small_lookup_reads_few_blocks_of_a_large_run(tmp_path):
    """One that is damaged is noticed by who reads it, and by no other."""
    runs = runs_in(tmp_path / "runs")
    runs.add(np.arange(0, 4000, 10, dtype=FINGERPRINT))
    [file] = runs.files
    content = bytearray(file.read_bytes())
    content[16 * 50 + 3] ^= 1  # block 50: 2000 to 2030
    file.write_bytes(content)
    assert runs.hold(prints([0, 5, 1990, 2040, 3990])).tolist() == [True, False, True, True, True]
    with pytest.raises(DamagedRunError):
        runs.hold(prints([2015]))
    with pytest.raises(DamagedRunError):
        runs.add(prints(range(1000)))


@pytest.mark.parametrize("place", [-1, -5, -20])
def test_what_tells_the_blocks_is_damaged(tmp_path, place):
    runs = runs_in(tmp_path / "runs")
    runs.add(prints(range(40)))
    [file] = runs.files
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)
    with pytest.raises(DamagedRunError):
        runs.hold(prints([7]))


@pytest.mark.parametrize("size", [0, 3, 4, 31, 33])
def test_a_run_that_is_cut_off_is_damaged(tmp_path, size):
    runs = runs_in(tmp_path / "runs")
    runs.add(prints(range(40)))
    [file] = runs.files
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(DamagedRunError):
        runs.hold(prints([7]))


def test_fingerprints_are_merged_as_sets_in_order():
    rng = np.random.default_rng(1)
    parts = [np.sort(rng.integers(0, 50, count).astype(FINGERPRINT)) for count in (0, 30, 9)]
    assert merged_prints(parts).tolist() == np.unique(np.concatenate(parts)).tolist()
    assert merged_prints(parts[:1]).tolist() == []


@pytest.mark.parametrize("numbers", [[], [0], [LAST], [0, LAST], [5, 70_000, 2**31, LAST - 1]])
def test_packed_fingerprints_are_the_same_again(numbers):
    assert unpacked(packed(prints(numbers))).tolist() == numbers
    assert not unpacked(b"").size


def test_packed_fingerprints_take_less_room():
    many = prints(np.random.default_rng(1).integers(0, 2**32, 50_000))
    content = packed(many)
    assert len(content) < 0.65 * many.nbytes
    assert np.array_equal(unpacked(content), many)
