"""topics spread: what it shows, and what it does not take."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

import headrace.topics.spreads.views  # noqa: F401 - the view of `topics spread`
from headrace.cli import main
from headrace.cli.console import ConsoleOutput
from headrace.errors import SpreadInvalidError, SpreadSampleError
from headrace.model import ByAccount, ByKey, Topic
from headrace.settings import Settings
from headrace.topics.spreads import report as module
from headrace.topics.spreads.loads import SampledLoads
from headrace.topics.spreads.report import SpreadOptions, spread_topic
from headrace.topics.spreads.spread_table import SpreadTable

HOUR = timedelta(hours=1)
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
OPTIONS = SpreadOptions(HOUR, 1_000, 50, {}, apply=False)


class Event:
    at: datetime


def topic(lead: timedelta | None = 2 * HOUR, **changes) -> Topic:
    changes = {"partitioning": ByAccount(HOUR, lead=lead), "partitions": 4} | changes
    return Topic("events", event=Event, event_time="at", latest_ahead=HOUR, **changes)


@pytest.fixture
def look(monkeypatch, tmp_path):
    """``look(topic, options, sizes)``: a report, of a cluster that has this load."""
    seen = SimpleNamespace(table=SpreadTable(), live=4)
    monkeypatch.setattr(module, "broker_config", lambda _: {})
    monkeypatch.setattr(
        module, "describe", lambda *_: {"events": SimpleNamespace(partitions=seen.live)}
    )
    monkeypatch.setattr(module, "applied_table", lambda *_: seen.table)

    def apply(_, topic, version, widths):
        seen.table = seen.table.changed(widths, NOON + 3 * HOUR, topic.partitioning.lead)
        return seen.table

    monkeypatch.setattr(module, "apply_spreads", apply)

    def look(topic, options=OPTIONS, sizes=None, unknown=0):
        sizes = Counter(sizes or {})
        loads = SampledLoads(NOON - HOUR, Fraction(1, 4), sizes=sizes, records=Counter(sizes))
        loads.partitions = Counter({2: sum(sizes.values()) + unknown})
        loads.partition_records = loads.partitions
        loads.unknown = loads.unknown_records = Counter({2: unknown} if unknown else {})
        monkeypatch.setattr(module, "sampled_loads", lambda *_: loads)
        return spread_topic(Settings(tmp_path, "p", ("flow",), "lake"), topic, options, NOON)

    look.seen = seen
    return look


LOADS = {("large", 1): 300, ("large", 2): 300, ("small", 1): 10}


def test_what_is_proposed_is_applied_once(look):
    report = look(topic(), sizes=LOADS)
    assert [(c.account, c.width, c.to) for c in report.changes] == [("large", 1, 4)]
    assert (report.version, report.applied) == (0, False)
    assert report.counts_from == NOON + 3 * HOUR  # the lead of 2 h, and 2 minutes
    options = SpreadOptions(HOUR, 1_000, 50, {}, apply=True)
    applied = look(topic(), options, LOADS)
    assert (applied.version, applied.applied) == (1, True)
    again = look(topic(), options, LOADS)
    assert (again.version, again.applied, again.changes) == (1, False, ())
    assert again.hottest_expected == report.hottest_proposed


def test_what_is_set_needs_no_records(look):
    options = SpreadOptions(HOUR, 1_000, 50, {"large": 3, "small": 1}, apply=True)
    report = look(topic(), options)
    assert [(c.account, c.to, c.share) for c in report.changes] == [("large", 3, 0.0)]
    assert report.hottest == 0.0


def test_without_a_lead_it_is_looked_at_and_nothing_can_be_applied(look):
    assert look(topic(lead=None), sizes=LOADS).counts_from is None
    options = SpreadOptions(HOUR, 1_000, 50, {}, apply=True)
    with pytest.raises(SpreadInvalidError, match=r"lead.*declare ByAccount\(lead=...\).*1:00:00"):
        look(topic(lead=None), options, LOADS)


def test_what_can_not_be_spread_is_named(look):
    with pytest.raises(SpreadInvalidError, match="field 'partitioning', value 'ByKey'"):
        look(topic(partitioning=ByKey()))
    with pytest.raises(SpreadInvalidError, match=r"'large=5'.*choose 1 to 4"):
        look(topic(), SpreadOptions(HOUR, 1, 50, {"large": 5}, apply=False))
    look.seen.live = 6
    with pytest.raises(SpreadInvalidError, match="Kafka has 6"):
        look(topic(), sizes=LOADS)


def test_a_sample_that_says_nothing_is_named(look):
    with pytest.raises(SpreadSampleError, match=r"none since 2026-05-01T11:00:00Z.*--last"):
        look(topic())
    with pytest.raises(SpreadSampleError, match=r"records 7.*header `account`.*account=\.\.\."):
        look(topic(), unknown=7)


def test_the_view_says_what_is_measured_and_what_would_be(look, capsys):
    ConsoleOutput().show(look(topic(partitions=4), sizes=LOADS, unknown=90))
    text = capsys.readouterr().out
    assert "events: 700 records (700 bytes) since 2026-05-01 11:00:00 UTC, 2 accounts in 2" in text
    assert "25.00% of the records since then were read" in text
    assert "90 records have no account" in text
    assert "2 windows show less than a spread does in time" in text
    assert "hottest partition: 4.00 times the mean" in text
    assert "Not applied: with --apply they count for windows since about 2026-05-01 15:00" in text
    [large] = [line.split() for line in text.splitlines() if line.startswith("large")]
    assert large[:4] == ["large", "85.7%", "1", "4"]


@pytest.mark.parametrize("value", ["acme", "acme=0", "=4", "acme=x", "acme=-1", "acme=²"])
def test_a_width_that_is_none_is_an_error_of_the_command_line(value):
    ended = CliRunner().invoke(main, ["topics", "spread", "events", "--set", value])
    assert ended.exit_code == 2
    assert "write acme=4" in ended.output
