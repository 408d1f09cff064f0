"""Counts the dead letters of a pipeline, to compare them with the ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from headrace.kafka.dead_letters.letters import StoredDeadLetter
from headrace.ledger.sums import Hop
from headrace.ledger.windows import Imbalance
from headrace.model import TopicPartition
from headrace.pipelines.late_data.rule import BEHIND_WATERMARK, LATE_EVENT
from headrace.pipelines.ledger.comparison import HopComparison


@dataclass(frozen=True)
class LetterRecount:
    """Dead letters that are missing in their topics.

    Attributes:
        differences: by partition of their records; without a partition: letters of rows that the
            sink has rejected, which belong to no record.
        unknown: why it is not known how many there are, as a sentence; empty: it is.
    """

    differences: tuple[Imbalance, ...] = ()
    unknown: str = ""


def recount_letters(letters: Iterable[StoredDeadLetter], balance: HopComparison) -> LetterRecount:
    """Compares letters with the records that became one since the ledger began.

    Letters of late events and of rows behind the watermark do not count: the ledger has them as
    late and as behind. A letter of a record or event counts once, however often it was written.
    Those that belong to no record may be there more often than once, after a crash, so only those
    that are missing are reported.

    Args:
        letters: that the pipeline has written.
        balance: of its ledger.
    """
    places: set[tuple[TopicPartition, int, int]] = set()
    numbers: Counter[TopicPartition | None] = Counter()
    for stored in letters:
        partition, offset = stored.letter.position
        if stored.letter.reason in {LATE_EVENT, BEHIND_WATERMARK}:
            continue
        if partition.partition < 0:
            numbers[None] += 1
        elif balance.has_read(partition, stored.topic_id, offset):
            places.add(stored.letter.place)
    numbers.update(partition for partition, *_ in places)
    missing = {place: number - numbers[place] for place, number in balance.dead_letters().items()}
    return LetterRecount(
        tuple(
            Imbalance(Hop.DEAD_LETTERS, number, partition=place.path if place else "")
            for place, number in missing.items()
            if number > 0
        )
    )
