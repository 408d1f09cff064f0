"""Which rows of a batch repeat rows of the table, or of each other."""

from __future__ import annotations

import enum

import numpy as np
from numpy.typing import NDArray

from headrace.sinks.lake.unique.known_rows import KnownRows
from headrace.sinks.lake.unique.row_keys import RowKeys

Verdicts = NDArray[np.uint8]


class Verdict(enum.IntEnum):
    """What becomes of a row.

    KEEP: it goes into the table. REPEAT: it is dropped. CONFLICT: it is a dead letter.
    """

    KEEP = 0
    REPEAT = 1
    CONFLICT = 2


def judge(keys: RowKeys, known: KnownRows, max_distance: int) -> Verdicts:
    """Returns a :class:`Verdict` for each row of a batch.

    Args:
        keys: of its rows, in the order in which the first row of a key is kept.
        known: rows of the table, of all slices that can be near.
        max_distance: rows are near whose slices are at most so far apart.
    """
    verdicts = np.zeros(len(keys), np.uint8)
    order = np.argsort(keys["key"], kind="stable")
    order = order[np.searchsorted(keys["key"][order], 1) :]  # those without a key are kept
    is_known, is_same = known.find(keys[order], max_distance)
    verdicts[order[is_known]] = np.where(
        is_same[is_known], np.uint8(Verdict.REPEAT), np.uint8(Verdict.CONFLICT)
    )
    left = order[~is_known]
    while len(left):
        left = _judge_by_first(keys, left, max_distance, verdicts)
    return verdicts


def _judge_by_first(
    keys: RowKeys, left: NDArray[np.int64], max_distance: int, verdicts: Verdicts
) -> NDArray[np.int64]:
    """Keeps the first row of each key and judges the rows near it; returns those that are not.

    ``left`` has the rows that are not judged yet, those of a key one after the other, in order.
    """
    hashes = keys["key"][left]
    begins = np.flatnonzero(np.concatenate([[True], hashes[1:] != hashes[:-1]]))
    if len(begins) == len(left):
        return left[:0]
    firsts = np.repeat(left[begins], np.diff(np.concatenate([begins, [len(left)]])))
    later = left != firsts
    left, firsts = left[later], firsts[later]
    distance = keys["slice"][left].astype(np.int64) - keys["slice"][firsts]
    near = np.abs(distance) <= max_distance
    same = keys["values"][left] == keys["values"][firsts]
    verdicts[left[near & same]] = Verdict.REPEAT
    verdicts[left[near & ~same]] = Verdict.CONFLICT
    undecided: NDArray[np.int64] = left[~near]
    return undecided
