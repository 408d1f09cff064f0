"""The spreads that were applied to a topic, as they are kept in Kafka."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from headrace.model import Spread

SPREADS_TOPIC = "_headrace.spreads"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class SpreadTable:
    """What was applied to a topic.

    Attributes:
        version: one more with each change; 0: nothing was applied.
        lead: that the topic declared when the version was applied.
        spreads: by account, in the order of their ``since``; all that were ever applied.
    """

    version: int = 0
    lead: timedelta | None = None
    spreads: Mapping[str, tuple[Spread, ...]] = field(default_factory=dict)

    def encoded(self) -> bytes:
        """Returns the value of its record."""
        document = {
            "version": self.version,
            "lead_us": None if self.lead is None else self.lead // _MICROSECOND,
            "spreads": {
                account: [
                    {"since_us": (spread.since - _EPOCH) // _MICROSECOND, "n": spread.partitions}
                    for spread in spreads
                ]
                for account, spreads in self.spreads.items()
            },
        }
        return json.dumps(document, separators=(",", ":")).encode()

    @classmethod
    def decoded(cls, value: bytes) -> SpreadTable:
        """Reads what :meth:`encoded` wrote. Raises ValueError, KeyError or TypeError."""
        document: Mapping[str, Any] = json.loads(value)
        lead = document["lead_us"]
        return cls(
            int(document["version"]),
            None if lead is None else lead * _MICROSECOND,
            {
                account: tuple(
                    Spread(_EPOCH + spread["since_us"] * _MICROSECOND, int(spread["n"]))
                    for spread in spreads
                )
                for account, spreads in document["spreads"].items()
            },
        )

    def changed(
        self, widths: Mapping[str, int], since: datetime, lead: timedelta | None
    ) -> SpreadTable:
        """Returns the next version.

        Args:
            widths: by account, over how many partitions it is spread.
            since: of the new spreads. One that was applied for the same time is replaced.
            lead: of the topic.
        """
        spreads = dict(self.spreads)
        for account, width in widths.items():
            # A spread that would begin later was applied by a clock ahead: it counts for no window.
            before = (spread for spread in spreads.get(account, ()) if spread.since < since)
            spreads[account] = (*before, Spread(since, width))
        return SpreadTable(self.version + 1, lead, spreads)
