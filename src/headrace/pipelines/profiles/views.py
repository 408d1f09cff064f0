"""View of `profile`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from headrace.cli.screen import Screen, safe, table
from headrace.cli.view import view
from headrace.sinks.profiles.store import Profile


@dataclass(frozen=True)
class ShownProfile:
    """A profile, whose times are shown to the microsecond: they are versions."""

    profile: Profile

    def to_json(self) -> dict[str, Any]:
        """Returns the profile with times as RFC 3339 texts."""
        profile = self.profile
        return {
            "store": profile.store,
            "user": profile.user,
            "fields": {name: _in_json(field) for name, field in profile.fields.items()},
            "lists": {
                name: [_in_json(entry) for entry in entries]
                for name, entries in profile.lists.items()
            },
            "forgotten": None if profile.forgotten is None else _exact(profile.forgotten),
            "expires": _exact(profile.expires),
        }


def _in_json(part: Any) -> dict[str, Any]:
    return asdict(part) | {"event_time": _exact(part.event_time)}


def _exact(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@view.register
def _profile(result: ShownProfile, screen: Screen) -> None:
    profile = result.profile
    user, store = safe(profile.user), safe(profile.store)
    screen.line(f"[bold]{user}[/] in {store}, expires {_exact(profile.expires)}")
    if profile.forgotten is not None:
        screen.line(f"  [yellow]forgotten[/] up to {_exact(profile.forgotten)}")
    if profile.fields:
        fields = table("field", "value", "event time", "event id")
        for name, field in profile.fields.items():
            value = safe(_text(field.value))
            fields.add_row(safe(name), value, _exact(field.event_time), safe(field.event_id))
        screen.out.print(fields, highlight=False)
    for name, entries in profile.lists.items():
        screen.line(f"[bold]{safe(name)}[/], {len(entries):,} latest")
        rows = table("event time", "event id", "values")
        for entry in entries:
            rows.add_row(_exact(entry.event_time), safe(entry.event_id), safe(_text(entry.values)))
        screen.out.print(rows, highlight=False)


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
