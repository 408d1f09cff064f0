"""Which rows of a batch are duplicates of rows of the table, or of each other."""

from __future__ import annotations

import enum

import numpy as np
from numpy.typing import NDArray

from headrace.events.event_hash import Hashes
from headrace.sinks.lake.unique.known_rows import KnownRows
from headrace.sinks.lake.unique.row_keys import RowKeys

Verdicts = NDArray[np.uint8]


class Verdict(enum.IntEnum):
    """What becomes of a row.

    KEEP: it goes into the table. DUPLICATE: it is dropped. CONFLICT: it is a dead letter.
    """

    KEEP = 0
    DUPLICATE = 1
    CONFLICT = 2


def judge(keys: RowKeys, ranks: NDArray[np.int64], known: KnownRows, max_distance: int) -> Verdicts:
    """Returns a :class:`Verdict` for each row of a batch.

    Args:
        keys: of its rows, in any order; of a key, the row of the smallest rank is kept.
        ranks: of the rows, each another one.
        known: rows of the table, of all slices that can be near.
        max_distance: rows are near whose slices are at most so far apart.
    """
    verdicts = np.zeros(len(keys), np.uint8)
    order = _ordered(keys["key"], ranks)
    order = order[np.searchsorted(keys["key"][order], 1) :]  # those without a key are kept
    is_known, is_same = known.find(keys[order], max_distance)
    verdicts[order[is_known]] = np.where(
        is_same[is_known], np.uint8(Verdict.DUPLICATE), np.uint8(Verdict.CONFLICT)
    )
    left = order[~is_known]
    while len(left):
        left = _judge_by_first(keys, left, max_distance, verdicts)
    return verdicts


def _ordered(hashes: Hashes, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows by hash, those of one hash by rank."""
    order: NDArray[np.int64] = np.argsort(hashes)  # not stable: several times faster
    sorted_hashes = hashes[order]
    is_tied = np.concatenate([[False], sorted_hashes[1:] == sorted_hashes[:-1], [False]])
    tied = np.flatnonzero(is_tied[1:] | is_tied[:-1])
    rows = order[tied]
    order[tied] = rows[np.lexsort((ranks[rows], hashes[rows]))]
    return order


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
    verdicts[left[near & same]] = Verdict.DUPLICATE
    verdicts[left[near & ~same]] = Verdict.CONFLICT
    undecided: NDArray[np.int64] = left[~near]
    return undecided
