"""Dead letters of batches, written once also where a batch is repeated."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from headrace.kafka import dead_letters
from headrace.kafka.client import ClientConfig
from headrace.model import DeadLetter, TopicPartition
from headrace.pipelines.pipeline import Pipeline


class DeadLetterWriter:
    """Writes the dead letters of one run's batches.

    The first time that there are any, it looks up which are written already: a crash may have cut
    off the batch after its letters, and a reset may have gone back behind many of them.
    """

    def __init__(self, pipeline: Pipeline, client: ClientConfig) -> None:
        self._pipeline = pipeline
        self._client = client
        self._written: Mapping[TopicPartition, set[int]] | None = None

    def write(self, letters: Sequence[DeadLetter], starts: Mapping[TopicPartition, int]) -> None:
        """Returns when every letter is in its topic on all in-sync replicas.

        A letter of a derived row has no position to be known by; it may be written again.

        Args:
            letters: of one batch.
            starts: where that batch begins: no letter before that can come again.
        """
        if not letters:
            return
        if self._written is None:
            self._written = self._look_up(starts)
        known = self._written
        fresh = [one for one in letters if one.offset not in known.get(one.partition, ())]
        dead_letters.write_dead_letters(
            self._client, fresh, self._pipeline.name, self._pipeline.version
        )

    def _look_up(self, starts: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, set[int]]:
        written: dict[TopicPartition, set[int]] = defaultdict(set)
        for topic in {source.topic.name for source in self._pipeline.sources}:
            for one in dead_letters.find_written(self._client, topic, self._pipeline.name):
                partition, offset = one.letter.position
                if offset >= max(0, starts.get(partition, 0)):
                    written[partition].add(offset)
        return written
