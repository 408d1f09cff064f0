"""What the driver and the planner tell each other: small JSON files in one local folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from headrace.pipelines.source.feedback import Feedback
from headrace.runtime.json_files import read_json, write_json, write_passing

# Made at import: msgspec crashes where several threads are the first to decode a class.
msgspec.json.Decoder(Feedback)


@dataclass(frozen=True)
class SourceView:
    """What the planner saw at its last look: offsets, idle and paused partitions.

    Attributes:
        latest: the end of each partition; empty while it is not known.
        positions: the next record that the pipeline reads of each partition.
    """

    latest: Mapping[int, int] = field(default_factory=dict)
    positions: Mapping[int, int] = field(default_factory=dict)
    idle: tuple[int, ...] = ()
    paused: tuple[int, ...] = ()
    unreachable: str = ""


class SourceState:
    """A pipeline's folder under ``.headrace/state``. Files are replaced whole.

    One that can't be read is taken as not there: nothing is known, nothing is paused.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def paused(self, topic: str) -> frozenset[int]:
        """Partitions that stay where they are until resumed."""
        return frozenset(self._read("paused.json").get(topic, ()))

    def pause(self, topic: str, partitions: frozenset[int]) -> None:
        """Hold exactly these partitions of a topic."""
        held = self._read("paused.json") | {topic: sorted(partitions)}
        paused = {name: partitions for name, partitions in held.items() if partitions}
        write_json(self._folder / "paused.json", paused)

    def feedback(self, checkpoint: str, batch_id: int | None = None) -> Feedback:
        """What the driver wrote last of this checkpoint; nothing is known at first.

        A checkpoint that begins at older records knows nothing of the time of newer ones.

        Args:
            checkpoint: its URI.
            batch_id: as it was before this batch; None: with the last one.
        """
        stored = self._read("feedback.json")
        if stored.get("checkpoint") != checkpoint:
            return Feedback()
        is_repeated = batch_id is not None and stored.get("batch_id") == batch_id
        return msgspec.convert(
            stored["before" if is_repeated else "feedback"], Feedback, strict=False
        )

    def feedback_at(self, checkpoint: str, ends: Mapping[str, Mapping[int, int]]) -> Feedback:
        """Returns what :meth:`feedback` does, of the batch that ended at these offsets.

        Nothing is known where the last one was another: the checkpoint was restored.

        Args:
            checkpoint: its URI.
            ends: offsets by topic and partition.
        """
        stored = self._read("feedback.json").get("ends")
        return self.feedback(checkpoint) if stored == _as_json(ends) else Feedback()

    def forget_clocks_of_another_history(
        self, checkpoint: str, ends: Mapping[int, Mapping[str, Mapping[int, int]]]
    ) -> None:
        """Deletes event clocks unless the checkpoint has the batch that they are of.

        A checkpoint that was restored goes back, and this folder does not: clocks of records that
        are read again would make all of these late. Sizes of records stay.

        Args:
            checkpoint: its URI.
            ends: offsets by topic and partition at the ends of its last two batches, by batch.
        """
        stored = self._read("feedback.json")
        if stored.get("checkpoint") != checkpoint:
            return
        batch_id = stored["batch_id"]
        if batch_id not in ends or stored["ends"] != _as_json(ends[batch_id]):
            without_clocks = asdict(Feedback(self.feedback(checkpoint).sizes))
            content = {"before": without_clocks, "feedback": without_clocks, "ends": {}}
            write_json(self._folder / "feedback.json", stored | content)

    def write_feedback(
        self,
        checkpoint: str,
        batch_id: int,
        feedback: Feedback,
        ends: Mapping[str, Mapping[int, int]],
    ) -> None:
        """Writes what the planner reads before its next batch; once more where one is repeated."""
        content = {
            "checkpoint": checkpoint,
            "batch_id": batch_id,
            "before": asdict(self.feedback(checkpoint, batch_id)),
            "feedback": asdict(feedback),
            "ends": _as_json(ends),
        }
        write_passing(self._folder / "feedback.json", content, sync=True)

    def waiting(self, checkpoint: str) -> dict[int, int | None]:
        """By partition of a join, the event time of the oldest event that waits, in microseconds.

        None: none waits. Partitions of which that is not known are left out.
        """
        stored = self._read("waiting.json")
        if stored.get("checkpoint") != checkpoint:
            return {}
        return {int(p): us for p, us in stored["oldest_us"].items()}

    def forget_waiting(self) -> None:
        """Deletes what an earlier run wrote, which may have ended before it wrote again."""
        (self._folder / "waiting.json").unlink(missing_ok=True)

    def write_waiting(self, checkpoint: str, oldest_us: Mapping[int, int | None]) -> None:
        """Writes what the planner of a join reads before its next batch."""
        content = {"checkpoint": checkpoint, "oldest_us": dict(oldest_us)}
        write_passing(self._folder / "waiting.json", content, sync=True)

    def view(self, topic: str) -> SourceView:
        """What the planner wrote last."""
        stored = self._read(f"view-{topic}.json")
        latest, positions = (
            {int(p): offset for p, offset in stored.get(name, {}).items()}
            for name in ("latest", "positions")
        )
        return SourceView(
            latest,
            positions,
            tuple(stored.get("idle", ())),
            tuple(stored.get("paused", ())),
            stored.get("unreachable", ""),
        )

    def write_view(self, topic: str, view: SourceView) -> None:
        """Writes what the driver reads for its progress."""
        write_passing(self._view(topic), asdict(view))

    def forget_view(self, topic: str) -> None:
        """Deletes what an earlier planner wrote: it says nothing of the topic as it is now."""
        self._view(topic).unlink(missing_ok=True)

    def _view(self, topic: str) -> Path:
        return self._folder / f"view-{topic}.json"

    def _read(self, name: str) -> dict[str, Any]:
        document: dict[str, Any] | None = read_json(self._folder / name, dict)
        return document or {}


def _as_json(ends: Mapping[str, Mapping[int, int]]) -> dict[str, dict[str, int]]:
    return {topic: {str(p): at for p, at in by.items()} for topic, by in ends.items()}
