"""What the driver and the planner exchange: small JSON files in one local folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from headrace.pipelines.source.planning.feedback import Feedback
from headrace.runtime.files.json_files import read_json, write_json, write_passing

_T = TypeVar("_T")


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


@dataclass(frozen=True)
class _StoredFeedback:
    """What is known after a batch of a checkpoint that ended at these offsets, and before it."""

    checkpoint: str = ""
    batch_id: int = -1
    before: Feedback = field(default_factory=Feedback)
    feedback: Feedback = field(default_factory=Feedback)
    ends: Mapping[str, Mapping[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class _StoredWaiting:
    """The oldest events that wait in a join, by partition."""

    checkpoint: str
    oldest_us: Mapping[int, int | None]


_Paused = dict[str, tuple[int, ...]]
# Made at import: msgspec crashes where several threads are the first to decode a class.
msgspec.json.Decoder(tuple[_StoredFeedback, _StoredWaiting, SourceView, _Paused])


class SourceState:
    """A pipeline's folder under ``.headrace/state``. Files are replaced whole.

    A file that can't be read counts as missing: nothing is known, nothing is paused.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def paused(self, topic: str) -> frozenset[int]:
        """Partitions that stay where they are until resumed."""
        return frozenset(self._paused().get(topic, ()))

    def pause(self, topic: str, partitions: frozenset[int]) -> None:
        """Hold exactly these partitions of a topic."""
        held = self._paused() | {topic: tuple(sorted(partitions))}
        paused = {name: partitions for name, partitions in held.items() if partitions}
        write_json(self._folder / "paused.json", paused)

    def feedback(self, checkpoint: str, batch_id: int | None = None) -> Feedback:
        """What the driver wrote last of this checkpoint; nothing is known at first.

        A checkpoint that begins at older records knows nothing of the time of newer ones.

        Args:
            checkpoint: its URI.
            batch_id: as it was before this batch; None: with the last one.
        """
        stored = self._feedback()
        if stored.checkpoint != checkpoint:
            return Feedback()
        return stored.before if stored.batch_id == batch_id else stored.feedback

    def feedback_at(self, checkpoint: str, ends: Mapping[str, Mapping[int, int]]) -> Feedback:
        """Returns what :meth:`feedback` does, of the batch that ended at these offsets.

        Nothing is known where the last one was another: the checkpoint was restored.

        Args:
            checkpoint: its URI.
            ends: offsets by topic and partition.
        """
        return self.feedback(checkpoint) if self._feedback().ends == ends else Feedback()

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
        stored = self._feedback()
        if stored.checkpoint != checkpoint:
            return
        if stored.batch_id not in ends or stored.ends != ends[stored.batch_id]:
            without_clocks = Feedback(stored.feedback.sizes)
            kept = replace(stored, before=without_clocks, feedback=without_clocks, ends={})
            write_json(self._folder / "feedback.json", asdict(kept))

    def write_feedback(
        self,
        checkpoint: str,
        batch_id: int,
        feedback: Feedback,
        ends: Mapping[str, Mapping[int, int]],
    ) -> None:
        """Writes what the planner reads before its next batch; a repeated one writes it again."""
        before = self.feedback(checkpoint, batch_id)
        stored = _StoredFeedback(checkpoint, batch_id, before, feedback, ends)
        # On the disk before the commit: a committed batch is not read again, nor are its event
        # times.
        write_passing(self._folder / "feedback.json", asdict(stored), sync=True)

    def waiting(self, checkpoint: str) -> dict[int, int | None]:
        """By partition of a join, the event time of the oldest event that waits, in microseconds.

        None: none waits. Partitions of which that is not known are left out.
        """
        stored = self._read("waiting.json", _StoredWaiting)
        return dict(stored.oldest_us) if stored and stored.checkpoint == checkpoint else {}

    def forget_waiting(self) -> None:
        """Deletes what an earlier run wrote, which may have ended before it wrote again."""
        (self._folder / "waiting.json").unlink(missing_ok=True)

    def write_waiting(self, checkpoint: str, oldest_us: Mapping[int, int | None]) -> None:
        """Writes what the planner of a join reads before its next batch."""
        stored = _StoredWaiting(checkpoint, dict(oldest_us))
        write_passing(self._folder / "waiting.json", asdict(stored), sync=True)

    def view(self, topic: str) -> SourceView:
        """What the planner wrote last."""
        return self._read(f"view-{topic}.json", SourceView) or SourceView()

    def write_view(self, topic: str, view: SourceView) -> None:
        """Writes what the driver reads for its progress."""
        write_passing(self._view(topic), asdict(view))

    def forget_view(self, topic: str) -> None:
        """Deletes what an earlier planner wrote: it says nothing of the topic as it is now."""
        self._view(topic).unlink(missing_ok=True)

    def _view(self, topic: str) -> Path:
        return self._folder / f"view-{topic}.json"

    def _paused(self) -> _Paused:
        return self._read("paused.json", _Paused) or {}

    def _feedback(self) -> _StoredFeedback:
        return self._read("feedback.json", _StoredFeedback) or _StoredFeedback()

    def _read(self, name: str, kind: type[_T]) -> _T | None:
        # Names of members in JSON are texts, and numbers of partitions here.
        return read_json(self._folder / name, partial(msgspec.convert, type=kind, strict=False))
