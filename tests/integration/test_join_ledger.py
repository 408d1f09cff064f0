"""The ledger of joins on the real broker, Spark and tables: balanced, and defects are named."""

import time
from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest
from deltalake import DeltaTable
from tests.integration.flow import Flow
from tests.integration.test_join import PARTITIONS, Site
from tests.integration.test_ledger import balance, totals
from tests.integration.test_planted_defects import found

from headrace import Lake, Match, Unique, filter_rows
from headrace.errors import SinkError, SinkUnavailableError
from headrace.ledger.sums import Fate
from headrace.ledger.windows import WindowState
from headrace.pipelines.ledger.folder import LedgerFolder
from headrace.service.status import State
from headrace.settings.model import LedgerSettings
from headrace.sinks.lake.driver import LakeDriver

MINUTE = timedelta(minutes=1)
THIRDS = filter_rows({"thirds": "substring(id, 2) % 3 = 0"})


@pytest.fixture
def site(broker, spark, tmp_path):
    return Site(Flow(broker, spark, tmp_path, partitions=PARTITIONS), event_id="id")


def send_week(site):
    """Sixty impressions, one sent again and one with another price; clicks of all kinds."""
    views = [site.impression(n) for n in range(60)]
    views += [views[7], views[9] | {"price": 99.0}, views[11] | {"price": "none"}]
    site.send(site.impressions, views)
    clicks = [site.click(n) for n in range(0, 60, 4)]
    clicks += [site.click(n, minute=5, impression_id="none") for n in range(70, 77)]
    site.send(site.clicks, [*clicks, site.click(80, impression_id=3), site.click(90)])


def pass_time(site, pipeline):
    """Impressions of later hours: what waits is given up."""
    site.send(site.impressions, [site.impression(n) for n in range(400, 500)])
    site.run(pipeline)
    site.run(pipeline)


@pytest.mark.parametrize(
    ("steps", "crashes"), [([], {1, 2}), ([THIRDS], set())], ids=["fused", "stepped"]
)
def test_every_event_is_in_one_fate_and_windows_balance_with_the_table(
    site, steps, crashes, monkeypatch
):
    """Also with a crash after the commit of the table, and one after that of the side table.

    The unmatched ones are committed before the entry counts, and the others after.
    """
    commit, committed = LakeDriver.commit, []

    def crashing(self, *arguments):
        done = commit(self, *arguments)
        committed.append(self)
        if len(committed) in crashes:
            raise SinkUnavailableError("table", "the driver was killed here")
        return done

    monkeypatch.setattr(LakeDriver, "commit", crashing)
    pipeline = site.pipeline(unmatched=Lake("unmatched"), steps=steps, allowed_lateness=MINUTE)
    send_week(site)
    site.run(pipeline)
    first = balance(site.flow, pipeline)
    assert found(first) == set()
    assert totals(first)[Fate.WAITING] == 1
    waits = [window.state for window in first.windows if Fate.WAITING in window.fates]
    assert not {WindowState.BALANCED, WindowState.UNBALANCED} & {*waits}
    pass_time(site, pipeline)
    result = balance(site.flow, pipeline)
    assert found(result) == set()
    dropped = {Fate.FILTERED: 5, Fate.OUT: 10} if steps else {Fate.OUT: 15}
    assert totals(result) == dropped | {
        "read": 187,
        Fate.KEPT: 160,
        Fate.UNMATCHED: 8,
        Fate.DEDUPLICATED: 1,
        Fate.DEAD: 3,
    }
    assert len(site.flow.rows("unmatched")) == 8
    assert sum(window.rows for window in result.windows) == dropped[Fate.OUT]
    states = Counter(window.state for window in result.windows)
    assert states[WindowState.BALANCED] >= 3
    assert states.keys() <= {WindowState.BALANCED, WindowState.CLOSING, WindowState.OPEN}


def test_unmatched_ones_without_a_sink_of_their_own_are_rows_of_the_table(site):
    pipeline = site.pipeline(match=Match.LAST)
    send_week(site)
    site.run(pipeline)
    pass_time(site, pipeline)
    result = balance(site.flow, pipeline)
    assert found(result) == set()
    counted = totals(result)
    assert (counted[Fate.OUT], counted[Fate.KEPT]) == (23, 162)
    assert Fate.UNMATCHED not in counted


def test_a_batch_in_which_time_alone_ends_a_wait_counts(site):
    """Its rows go beside the table, which gets a commit without rows, so that its entry counts."""
    pipeline = site.pipeline(unmatched=Lake("unmatched"), wait=timedelta(seconds=15))
    views = [site.impression(n, minute=60, user="u1") for n in range(10)]
    site.send(site.impressions, views)
    unknown = {"minute": 60, "user": "u1", "impression_id": "none"}
    site.send(site.clicks, [site.click(n, **unknown) for n in range(7)])
    site.run(pipeline)
    first = totals(balance(site.flow, pipeline))
    time.sleep(17)
    site.run(pipeline)
    result = balance(site.flow, pipeline)
    assert found(result) == set()
    assert first[Fate.WAITING] == 7
    assert totals(result) == {"read": 17, Fate.KEPT: 10, Fate.UNMATCHED: 7}


def test_deleted_rows_and_a_lost_wait_are_named(site):
    """The wait is lost as by a state that lacks its event."""
    pipeline = site.pipeline(unmatched=Lake("unmatched"))
    send_week(site)
    site.run(pipeline)
    DeltaTable(f"{site.flow.lake}/joined").delete("id = 'c8'")
    unmatched = DeltaTable(f"{site.flow.lake}/unmatched")
    one = unmatched.to_pyarrow_table()["id"][0].as_py()
    unmatched.delete(f"id = '{one}'")
    ledger = LedgerFolder(site.flow.lake, pipeline.name)
    entry = max((ledger.read(span) for span in ledger.spans()), key=lambda entry: entry.last)
    ledger.write(replace(entry, waiting={site.clicks.name: {0: (), 1: ()}}))
    differences = {(hop, number) for hop, _, number in found(balance(site.flow, pipeline))}
    assert differences == {("join", 1), ("table", 1), ("side table", 1)}


def test_duplicates_that_the_side_table_drops_are_counted_once_over_a_crash(site, monkeypatch):
    """The crash comes between its commit and the other one, which is looked at in between."""
    once = Lake("unmatched", unique=Unique(by=["id"], within=timedelta(days=1)))
    pipeline = site.pipeline(unmatched=once)
    site.send(site.impressions, map(site.impression, range(60)))
    site.send(site.clicks, [site.click(8)])
    site.run(pipeline)
    unknown = [site.click(n, minute=5, impression_id="none") for n in range(70, 77)]
    site.send(site.clicks, [*unknown, unknown[0], unknown[3]])
    commit = LakeDriver.commit

    def failing(self, *arguments):
        if self._table.unique is None:
            raise SinkError("table", "the driver was killed here")
        return commit(self, *arguments)

    monkeypatch.setattr(LakeDriver, "commit", failing)
    assert site.flow.run(pipeline)[pipeline.name].state is State.FAILED
    monkeypatch.undo()
    between = balance(site.flow, pipeline)
    assert found(between) == set()
    assert len(site.flow.rows("unmatched")) == 7
    site.run(pipeline)
    result = balance(site.flow, pipeline)
    assert found(result) == set()
    assert WindowState.UNKNOWN not in {window.state for window in result.windows}
    counted = totals(result)
    assert (counted[Fate.UNMATCHED], counted[Fate.DEDUPLICATED]) == (7, 2)


def test_a_reset_that_forgets_what_waits_is_named(site):
    pipeline = site.pipeline(unmatched=Lake("unmatched"))
    send_week(site)
    site.run(pipeline)
    site.flow.reset(pipeline, "table", accept_loss=True)
    site.send(site.clicks, [site.click(n, impression_id="none") for n in range(91, 105)])
    site.run(pipeline)
    differences = {(hop, number) for hop, _, number in found(balance(site.flow, pipeline))}
    assert differences == {("join", 1)}


def test_events_that_begin_or_end_to_wait_while_the_ledger_is_off_are_no_difference(site):
    pipeline = site.pipeline()
    site.send(site.impressions, map(site.impression, range(30)))
    site.send(site.clicks, [*map(site.click, range(0, 20, 2)), site.click(31)])
    site.run(pipeline)
    site.flow.more_settings = {"ledger": LedgerSettings(enabled=False)}
    site.send(site.impressions, [site.impression(31)])
    site.send(site.clicks, [site.click(38)])
    site.run(pipeline)
    site.flow.more_settings = {}
    site.send(site.clicks, [site.click(21), site.click(24)])
    site.run(pipeline)
    assert {"c31", "c21", "c24"} <= site.joined().keys()
    result = balance(site.flow, pipeline)
    assert found(result) == set()
    assert result.uncounted
