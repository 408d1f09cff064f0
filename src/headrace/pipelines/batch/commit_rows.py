"""The commit of a batch's rows, without those that the sink rejects at the commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from headrace.runtime.cleanup import cleaning_up_after_failure
from headrace.sinks.api import (
    CommitRejection,
    CommitResult,
    SinkDriver,
    Transaction,
)

Reject: TypeAlias = Callable[[CommitRejection], None]
"""Makes rejected rows dead letters, and returns when they are written and duplicates are noted."""


def commit_rows(
    sink: SinkDriver,
    pieces: Sequence[str],
    transaction: Transaction,
    watermark_us: int,
    reject: Reject,
) -> CommitResult:
    """Commits the rows of a batch.

    Rows that the sink rejects are dead letters, and duplicates that it drops are in the ledger,
    before the others are committed: the commit is what says that a batch is done. What another
    driver has committed meanwhile is discarded.

    Raises:
        DeadLetterLimitError: if there are too many of them; nothing is committed.
        SinkError: if nothing is committed, or it is not known whether it was.
    """
    done = sink.commit(pieces, transaction, watermark_us)
    # The loop terminates: each round rejects or drops at least one row.
    while isinstance(done, CommitRejection):
        pieces = done.pieces
        # Nothing is committed, and the next attempt of the batch brings pieces of its own.
        with cleaning_up_after_failure(partial(sink.discard, pieces)):
            reject(done)
        done = sink.commit(pieces, transaction, watermark_us)
    if not done.is_new:
        sink.discard(pieces)
    return done
