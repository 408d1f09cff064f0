"""The telemetry of 400 accounts, of which six have nine tenths of all events.

All of it is made from a seed, so the same seed and the same begin give the same events.
``python traffic.py`` sends it, second by second, to the project's topics.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import flow

from headrace import Project

SEED = 20180318
EVENTS_PER_SECOND = 1_500
SECONDS = 45
ACCOUNTS = tuple(f"a{number:03}" for number in range(400))
LARGE_ACCOUNTS = ACCOUNTS[:6]  # 1.5 % of the accounts
LARGE_SHARE = 0.9
SHARES = {"page_views": 60, "transactions": 30, "errors": 10}
APPS = ("shop", "search", "checkout", "admin", "mobile")
COUNTRIES = ("PL", "DE", "FR", "US", "BR")
PATHS = ("/", "/search", "/item", "/cart", "/pay")
ERROR_TYPES = ("TypeError", "KeyError", "TimeoutError", "ConnectionError")
# All queries have windows that begin at such times: so each run has the same events in each window.
ALIGNMENT_SECONDS = 10
MAKING_SECONDS = 3  # so long it takes to make the events
# One event in fifty is sent late, as by a phone that was in a tunnel.
DELAYED = 0.02
MAX_DELAY = timedelta(seconds=3)


@dataclass(frozen=True)
class Sending:
    """An event on its way.

    Attributes:
        topic: to which it is sent.
        sent_at: when it is sent.
        text: of the event, JSON.
    """

    topic: str
    sent_at: datetime
    text: str


def sendings(begin: datetime, *, seconds: int = SECONDS) -> list[Sending]:
    """Returns the events of ``seconds`` from ``begin`` on, in the order in which they are sent."""
    made = _Traffic(begin, random.Random(SEED))  # noqa: S311 - no secret
    count = seconds * EVENTS_PER_SECOND
    return sorted(made.sendings(count), key=lambda sending: sending.sent_at)


def next_begin() -> datetime:
    """Returns when events may begin: in some seconds, when windows of all queries do."""
    earliest = datetime.now(UTC).timestamp() + MAKING_SECONDS
    return datetime.fromtimestamp(math.ceil(earliest / ALIGNMENT_SECONDS) * ALIGNMENT_SECONDS, UTC)


def write(events: Sequence[Sending], folder: Path) -> None:
    """Writes the events of each topic to a file of JSON lines, ``TOPIC.ndjson``."""
    folder.mkdir(parents=True, exist_ok=True)
    for topic in SHARES:
        lines = (event.text for event in events if event.topic == topic)
        (folder / f"{topic}.ndjson").write_text("\n".join(lines) + "\n")


def send(
    events: Sequence[Sending], project: Project, progress: Callable[[int], None] = lambda _: None
) -> None:
    """Sends each event when its time has come, and waits until Kafka has all of them.

    Args:
        events: in the order of their times.
        project: with the topics.
        progress: is called with the number of events that are sent, several times a second.
    """
    with project.producer() as producer:
        for sent, event in enumerate(events):
            early = (event.sent_at - datetime.now(UTC)).total_seconds()
            if early > 0:
                progress(sent)
                time.sleep(max(early, 0.1))
            producer.send(event.topic, event.text)
    progress(len(events))


@dataclass(frozen=True)
class _Traffic:
    """Makes events, by a seeded source of numbers."""

    begin: datetime
    random: random.Random

    def sendings(self, count: int) -> Iterator[Sending]:
        make = {
            "page_views": self._page_view,
            "transactions": self._transaction,
            "errors": self._error,
        }
        topics = self.random.choices(list(SHARES), list(SHARES.values()), k=count)
        for number, topic in enumerate(topics):
            at = self.begin + number * timedelta(seconds=1) / EVENTS_PER_SECOND
            is_delayed = self.random.random() < DELAYED
            delay = self.random.random() * MAX_DELAY if is_delayed else timedelta(0)
            event = self._common(number, at) | make[topic]()
            yield Sending(topic, at + delay, json.dumps(event, separators=(",", ":")))

    def _common(self, number: int, at: datetime) -> dict[str, Any]:
        is_large = self.random.random() < LARGE_SHARE
        account = self.random.choice(LARGE_ACCOUNTS if is_large else ACCOUNTS[6:])
        plans = get_args(flow.Plan)
        return {
            "event_id": f"e{number}",
            "at": at.isoformat(timespec="microseconds"),
            "account": {"id": account, "plan": plans[int(account[1:]) % len(plans)]},
            "app": {
                "name": self.random.choice(APPS),
                "version": f"1.{self.random.randrange(4)}",
            },
        }

    def _page_view(self) -> dict[str, Any]:
        backend, render = self._milliseconds(120), self._milliseconds(300)
        return {
            "browser": {
                "name": self.random.choice(get_args(flow.BrowserName)),
                "version": self.random.randrange(100, 140),
                "country": self.random.choice(COUNTRIES),
            },
            "session": self._session(),
            "path": self.random.choice(PATHS),
            "durations": {
                "backend_ms": backend,
                "render_ms": render,
                "total_ms": backend + render,
            },
        }

    def _transaction(self) -> dict[str, Any]:
        database, rest = self._milliseconds(40), self._milliseconds(80)
        is_order = self.random.random() < 0.2
        return {
            "name": f"{self.random.choice(('GET', 'POST'))} {self.random.choice(PATHS)}",
            "status": self.random.choices((200, 404, 500), (94, 4, 2))[0],
            "durations": {"database_ms": database, "total_ms": database + rest},
            "amount_cents": self.random.randrange(500, 20_000) if is_order else None,
        }

    def _error(self) -> dict[str, Any]:
        return {
            "error": {
                "type": self.random.choice(ERROR_TYPES),
                "severity": self.random.choices(get_args(flow.Severity), (6, 3, 1))[0],
                "host": f"web-{self.random.randrange(12)}",
            },
            "session": self._session() if self.random.random() < 0.7 else None,
        }

    def _milliseconds(self, median: int) -> int:
        """Returns a duration as they are in practice: most are short, some are very long."""
        return round(median * self.random.lognormvariate(0, 0.7))

    def _session(self) -> str:
        return f"s{self.random.randrange(3_000)}"


if __name__ == "__main__":
    send(sendings(next_begin()), Project.open(Path(__file__).parent))
