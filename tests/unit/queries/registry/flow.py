"""A project with standing queries, and a sink of the shape of the one that matches them."""

FLOW = """
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar

from headrace import Guarantee, Pipeline, Sink, StandingQueries, Topic


@dataclass(frozen=True)
class StandIn(Sink):
    queries: StandingQueries
    kind: ClassVar = "queries"
    guarantee: ClassVar = Guarantee.EXACTLY_ONCE

    @property
    def target(self):
        return self.queries.name

    def faults(self, rows):
        return ()

    def open(self, context, schema):
        raise NotImplementedError


class Click:
    country: str
    price: float
    at: datetime


clicks = Topic("clicks", event=Click, event_time="at")
views = Topic("views", event=Click, event_time="at")
ads = StandingQueries("ads")
match_clicks = Pipeline("match-clicks", clicks, StandIn(ads))
"""


def write_project(folder, flow=FLOW, *, bootstrap=""):
    """Write a project of one module, whose name is new: Python would not import a second one."""
    module = f"flow_{len(list(folder.glob('*.py')))}"
    kafka = f'[kafka]\nbootstrap_servers = "{bootstrap}"\n' if bootstrap else ""
    settings = f'[project]\nname = "queries"\nmodules = ["{module}"]\n{kafka}'
    (folder / "headrace.toml").write_text(settings)
    (folder / f"{module}.py").write_text(flow)
    return folder
