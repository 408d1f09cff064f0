"""A kind of links that copy says what its own words, counters and records are; the rest follows."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from types import ModuleType, SimpleNamespace
from typing import ClassVar

import pytest

from headrace import Topic
from headrace.cli.console import ConsoleOutput
from headrace.errors import LinkLossError, LinkOffsetError
from headrace.links.copying.declaration import CopyLink
from headrace.links.copying.errors import copy_words
from headrace.links.copying.kind import CopyKind
from headrace.links.copying.plan import CopyPlan
from headrace.links.copying.status import CopyStatus
from headrace.links.copying.views import copying
from headrace.service.figures import counter
from headrace.settings import load_settings


@dataclass(frozen=True)
class Relay(CopyLink):
    name: str
    topics: Mapping[str, Topic]
    header: str
    commit_every: timedelta = timedelta(seconds=1)

    @property
    def consumer_group(self):
        return f"headrace.relay.{self.name}"


@dataclass(frozen=True)
class RelayStatus(CopyStatus):
    without_header: int = counter("records", "records without the header", "")

    kind: ClassVar[str] = "relay"
    folder: ClassVar[str] = "relays"
    not_copied: ClassVar = {"without_header": "records without the header"}


@dataclass(frozen=True)
class RelayPlan(CopyPlan):
    header: str = ""

    status = RelayStatus

    @property
    def filter(self):
        return SimpleNamespace(
            counter_of=lambda headers: (
                "records" if self.header in dict(headers) else "without_header"
            )
        )


RELAY = CopyKind(
    type=Relay,
    label="relay",
    type_faults=lambda _: (),
    faults=lambda *_: (),
    source_site=lambda _, site: site,
    plan_fields=lambda relay: {"header": relay.header},
)
LINK = Relay("r", {"a": Topic("b"), "c": Topic("d")}, "paid")


@pytest.fixture
def settings(tmp_path):
    (tmp_path / "headrace.toml").write_text(
        '[project]\nname = "any"\nmodules = ["any"]\n[kafka]\nbootstrap_servers = "k:1"\n'
    )
    return load_settings(tmp_path, {})


@pytest.fixture(autouse=True)
def folder(monkeypatch):
    """The modules of its folder."""
    modules = {
        "": {},
        ".errors": {"WORDS": copy_words("relay")},
        ".plan": {"RelayPlan": RelayPlan},
        ".status": {"RelayStatus": RelayStatus},
    }
    for name, attributes in modules.items():
        module = ModuleType(f"headrace.links.relay{name}")
        vars(module).update(attributes)
        monkeypatch.setitem(sys.modules, module.__name__, module)


def test_a_link_within_one_site_has_that_cluster_twice_and_its_own_fields(settings):
    plan = RELAY.plan(settings, LINK)
    assert (plan.source_site, plan.target_site, plan.origin_site) == ("central",) * 3
    assert plan.source == plan.target
    assert (plan.copies, plan.commit_seconds) == ({"a": "b", "c": "d"}, 1.0)
    assert plan.filter.counter_of([("paid", b"")]) == "records"


def test_its_topics_are_written_compared_and_counted(settings):
    assert [topic.name for _, topic in RELAY.writes(LINK)] == ["b", "d"]
    assert RELAY.consumer_group(LINK) == "headrace.relay.r"
    first, _ = RELAY.replicated(LINK, "central")
    assert str(first) == "relay r, a at central to b at central"
    books = [ends.book for ends in RELAY.ends(SimpleNamespace(settings=settings), LINK)]
    assert [(book.kind, book.source, book.target) for book in books] == [
        ("relay", "a at central", "b at central"),
        ("relay", "c at central", "d at central"),
    ]


def test_metrics_name_the_kind_and_have_its_counters_after_those_of_copied_records():
    names = [metric.name for metric in RelayStatus.metrics]
    assert names[:3] == ["records", "value_bytes", "without_header"]
    texts = [metric.runbook for metric in RelayStatus.metrics]
    texts += [metric.runbook for metric in RelayStatus.part_metrics["partition"]]
    assert sum("`headrace relay list`" in text for text in texts) == 2
    assert not any("{" in text for text in texts)
    [status] = RELAY.statuses()
    assert (status.name, status.type) == ("relays", RelayStatus)


def test_records_that_are_not_copied_are_in_the_line_of_a_run(capsys):
    with ConsoleOutput().live(copying) as observe:
        observe(RelayStatus("r").counted({"records": 2, "without_header": 1_000}))
    assert "2 records copied, 0 partitions, lag 0, 1,000 records without the header" in (
        capsys.readouterr().out
    )


def test_errors_have_codes_of_the_kind_and_say_copied():
    loss = LinkLossError("relay", "r", "central", "a/0", 5, 9, "", "gap")
    assert loss.code == "RELAY_GAP"
    assert "before they were copied" in str(loss)
    assert "`headrace relay accept r a/0`" in str(loss)
    offset = LinkOffsetError("relay", "r", "central", "a/0", 1, 5, 9)
    assert offset.code == "RELAY_OFFSET"
    assert offset.remedy == "Give --to an offset from 5 to 9."
