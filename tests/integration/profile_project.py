"""A project with one store of profiles, for commands that read them."""

from pathlib import Path

FLOW = """
from datetime import datetime, timedelta
from headrace import Latest, Pipeline, Profiles, Topic


class Event:
    user: int
    at: datetime
    item: str


events = Topic("events", event=Event, event_time="at")
load = Pipeline(
    "load", events, Profiles("{store}", key="user", ttl=timedelta(days=1), fields=("item",))
)
"""


def write_project(folder: Path, store: str, url: str) -> None:
    """Writes it; ``url`` is the setting of the store as headrace.toml has it."""
    (folder / "flow.py").write_text(FLOW.format(store=store))
    settings = '[project]\nname = "any"\nmodules = ["flow"]\n[sinks.profiles]\n'
    (folder / "headrace.toml").write_text(f"{settings}url = {url}\n")
