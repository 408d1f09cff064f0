"""Events of one range on their way from their records to rows of the sink, a chunk at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from headrace.kafka.read.range_reader import Record
from headrace.pipelines.source.decode import Decoded

if TYPE_CHECKING:
    from headrace.pipelines.ledger.counting.tally import LedgerColumns


class EventChunk:
    """A chunk of records, and what the stages have made of it so far.

    Attributes:
        records: as they were read.
        deletions: records without a value that delete rows.
        rows: of the events that are left.
        events: the records of ``rows``.
        decoded: ``events`` as they were decoded.
        places: the index in ``records`` of each event that is left.
        rejected: what becomes dead letters and why, by index in ``records``.
        bad: the indices of bad records; a late event is none, wherever it goes.
        counted: what the ledger has counted of the events that are left; None: nothing.
    """

    def __init__(
        self, records: Sequence[Record], deletions: Sequence[Record], decoded: Decoded
    ) -> None:
        self.records, self.deletions = records, deletions
        self.rows, self.rejected = decoded.rows, dict(decoded.rejected)
        self.bad, self.events = list(decoded.rejected), records
        self.places: Sequence[int] = range(len(records))
        self.counted: LedgerColumns | None = None
        if self.bad:
            self.places = np.delete(self.places, self.bad).tolist()
            self.events = [records[place] for place in self.places]
        self.decoded = self.events
