"""Views of `dead-letters list`, `show` and `replay`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from headrace.cli.encoding import merged
from headrace.cli.screen import Screen, content_text, safe, table, time_text
from headrace.cli.view import view

if TYPE_CHECKING:
    from headrace.kafka.dead_letters.letters import StoredDeadLetter
    from headrace.kafka.dead_letters.replay import Replay
    from headrace.topics.dead_letters.held_letters import TopicDeadLetters


@dataclass(frozen=True)
class DeadLetterCounts:
    """Dead letters of topics, counted."""

    topics: tuple[TopicDeadLetters, ...]


@dataclass(frozen=True)
class DeadLetterList:
    """Dead letters, a line each."""

    letters: tuple[StoredDeadLetter, ...]

    def to_json(self) -> dict[str, Any]:
        """Returns the facts of each, without its bytes."""
        return {"dead_letters": [_facts(stored) for stored in self.letters]}


@dataclass(frozen=True)
class DeadLetterContents:
    """Dead letters of one record, in full."""

    letters: tuple[StoredDeadLetter, ...]

    def to_json(self) -> dict[str, Any]:
        """Returns the facts of each, with its key, value and headers."""
        return {
            "dead_letters": [
                _facts(stored)
                | {
                    "key": stored.letter.key,
                    "value": stored.letter.value,
                    "headers": [
                        {"name": name, "value": value} for name, value in stored.letter.headers
                    ],
                }
                for stored in self.letters
            ]
        }


@dataclass(frozen=True)
class ReplayResult:
    """Dead letters that were sent back, or would be."""

    topic: str
    replay: Replay
    dry_run: bool

    def to_json(self) -> dict[str, Any]:
        """Returns the counts beside the topic."""
        return merged({"topic": self.topic, "dry_run": self.dry_run}, self.replay)


@view.register
def _counts(result: DeadLetterCounts, screen: Screen) -> None:
    topics = table("topic", "dead letters", "waiting", "reasons", "latest")
    for counts in result.topics:
        reasons = ", ".join(f"{reason} {count}" for reason, count in counts.reasons.items())
        cells = (counts.topic, str(counts.count), str(counts.waiting), reasons)
        topics.add_row(*map(safe, cells), time_text(counts.latest_ms))
    screen.out.print(topics)
    for counts in result.topics:
        if counts.without_record:
            screen.line(
                f"{safe(counts.topic)}: {counts.without_record} belong to no record, and can't be "
                "replayed"
            )


@view.register
def _list(result: DeadLetterList, screen: Screen) -> None:
    letters = table("record", "reason", "rejected by", "written", "detail")
    for stored in result.letters:
        letter, written = stored.letter, time_text(stored.written_ms)
        # Reasons and details may quote what a producer wrote, such as codes that a terminal
        # executes.
        cells = (stored.origin, letter.reason, stored.pipeline, written, letter.detail)
        letters.add_row(*map(safe, cells))
    screen.out.print(letters)


@view.register
def _contents(result: DeadLetterContents, screen: Screen) -> None:
    for stored in result.letters:
        letter = stored.letter
        facts = {
            "record": f"{stored.origin}, {time_text(letter.timestamp_ms)}",
            "reason": f"{letter.reason}: {letter.detail}",
            "rejected by": f"{stored.pipeline}, version {stored.version}",
            "written": f"{time_text(stored.written_ms)}, after {stored.replays} replay(s)",
            "key": content_text(letter.key),
            "value": content_text(letter.value),
        }
        facts |= {f"header {name}": content_text(value) for name, value in letter.headers}
        for name, fact in facts.items():
            screen.line(f"[bold]{safe(name)}[/]: {safe(fact)}")


@view.register
def _replayed(result: ReplayResult, screen: Screen) -> None:
    replay, verb = result.replay, "would be sent" if result.dry_run else "sent"
    screen.out.print(
        f"{replay.sent} {verb} to {escape(result.topic)}, {replay.already} replayed before, "
        f"{replay.given_up} exceeded the replay limit."
    )
    if replay.without_record:
        screen.out.print(f"  {replay.without_record} left alone: they belong to no record")
    for name, count in sorted(replay.readers.items()):
        screen.out.print(f"  {count} for {escape(name)}")


def _facts(stored: StoredDeadLetter) -> dict[str, Any]:
    letter = stored.letter
    return {
        "record": stored.origin,
        "reason": letter.reason,
        "detail": letter.detail,
        "pipeline": stored.pipeline,
        "version": stored.version,
        "replays": stored.replays,
        "timestamp_ms": letter.timestamp_ms,
        "written_ms": stored.written_ms,
    }
