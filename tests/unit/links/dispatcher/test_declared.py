"""What `headrace check` says of dispatchers."""

from __future__ import annotations

from datetime import timedelta

import pytest

from headrace import Avro, Dispatcher, DispatchMode, Home, Topic
from headrace.errors import ProjectError
from headrace.links.dispatcher import standing as dispatchers
from headrace.links.dispatcher.kind import KIND
from headrace.links.dispatcher.standing import dispatcher_session, routes_of
from headrace.project.check import load_project
from headrace.settings import load_settings

HOME = Home("user.country")
CLICKS = Topic("clicks", partitions=4)
TARGETS = {"waw": "clicks.elsewhere", "par": "clicks.elsewhere"}
SITES = (
    '[project]\nname = "demo"\nsite = "central"\nmodules = ["flow"]\n'
    '[kafka]\nbootstrap_servers = "a:1"\n'
    '[sites.waw.kafka]\nbootstrap_servers = "b:1"\n'
    '[sites.par.kafka]\nbootstrap_servers = "c:1"\n'
)
FLOW = (
    "from headrace import Dispatcher, Home, Topic\n"
    'clicks = Topic("clicks", partitions=4)\n'
    'first = Dispatcher("first", clicks, {"waw": "events", "par": "events"}, '
    'related={"par": ["waw"], "central": ["waw", "par"]})\n'
)


def load(tmp_path, flow=FLOW):
    (tmp_path / "headrace.toml").write_text(SITES)
    (tmp_path / "flow.py").write_text(flow)
    return load_project(load_settings(tmp_path, environ={}))


@pytest.fixture
def settings(tmp_path):
    return load(tmp_path).settings


def dispatcher(**changes):
    return Dispatcher(**{"name": "d", "source": CLICKS, "targets": TARGETS} | changes)


def test_a_dispatcher_to_declared_sites_is_right(settings):
    right = dispatcher(
        home=Home("user.country", {"PL": "waw", "DE": "central"}), related={"central": ["waw"]}
    )
    assert KIND.own_faults(right, settings) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": 7}, "dispatcher 7: name is 7"),
        ({"name": "a b"}, "'a b' is not a dispatcher name"),
        ({"source": "clicks"}, "source is 'clicks'"),
        ({"source": Topic("c", partitions=4, compaction=True)}, "source 'c' is compacted"),
        (
            {"source": Topic("c", partitions=4, config={"cleanup.policy": "compact"})},
            "source 'c' is compacted",
        ),
        ({"targets": ["waw"]}, "targets is ['waw']"),
        ({"targets": {"waw": CLICKS}}, "targets is {'waw'"),
        ({"targets": {}}, "has no targets"),
        ({"targets": {"central": "c"}}, "target 'central' is the project's own site"),
        ({"targets": {"lyon": "c"}}, "'lyon', which is no site; declared: central, waw"),
        ({"targets": {"waw": "a b"}}, "a b"),
        ({"home": "country"}, "home is 'country'"),
        ({"home": Home("country", ["waw"])}, "home is Home"),
        ({"home": Home("a-b")}, "home.field is 'a-b'"),
        ({"home": Home("$.a")}, "home.field is '$.a'"),
        ({"home": Home("c", {"PL": "lyon"})}, "home.sites has 'lyon', which is no site"),
        ({"related": ["waw"]}, "related is ['waw']"),
        ({"related": {"waw": "par"}}, "related is {'waw': 'par'}"),
        ({"related": {"lyon": ["waw"]}}, "related has 'lyon', which is no site"),
        ({"related": {"waw": ["central"]}}, "related has 'central', which is no target"),
        ({"mode": "real-time"}, "mode is 'real-time'"),
        ({"commit_every": 5}, "Dispatcher.commit_every is 5"),
        ({"commit_every": timedelta(seconds=4)}, "is 0:00:04; at least 0:00:05"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(settings, changes, message):
    faults = [
        f"{fault.message}; {fault.remedy}"
        for fault in KIND.own_faults(dispatcher(**changes), settings)
    ]
    assert any(message in fault for fault in faults), faults


def test_a_home_is_read_from_json_alone(settings):
    class Click:
        country: str

    avro = Topic("clicks", partitions=4, event=Click, format=Avro())
    [fault] = KIND.own_faults(dispatcher(source=avro, home=Home("country")), settings)
    assert "home is a field of JSON events" in fault.message
    assert KIND.own_faults(dispatcher(source=avro), settings) == []


class Click:
    user: User


class User:
    country: str


@pytest.mark.parametrize("field", ["country", "user.land", "user.country.code"])
def test_a_home_that_no_event_has_is_refused(settings, field):
    clicks = Topic("clicks", partitions=4, event=Click)
    assert KIND.own_faults(dispatcher(source=clicks, home=HOME), settings) == []
    wrong = dispatcher(source=clicks, home=Home(field))
    [fault] = KIND.own_faults(wrong, settings)
    assert f"home.field is {field!r}, and events of 'clicks' have no such field" in fault.message


def test_two_dispatchers_do_not_write_one_source_to_one_topic(tmp_path):
    second = 'second = Dispatcher("second", clicks, {"waw": "events"})\n'
    with pytest.raises(ProjectError, match="'events' at 'waw', as 'first' does"):
        load(tmp_path, FLOW + second)


def test_the_source_is_declared(tmp_path):
    second = 'second = Dispatcher("second", Topic("other", partitions=4), {"waw": "x"})\n'
    with pytest.raises(ProjectError, match="dispatcher 'second' reads 'other'"):
        load(tmp_path, FLOW + second)


def test_a_route_has_the_sites_whose_records_its_target_wants(tmp_path):
    project = load(tmp_path)
    waw, par = routes_of(project, project.declared(Dispatcher)["first"])
    assert (waw.target_site, waw.related) == ("waw", {"par", "central"})
    assert (par.target_site, par.related) == ("par", {"central"})
    assert (waw.group, waw.sites) == ("headrace.dispatcher.first.waw", {"central", "waw", "par"})
    assert (waw.source["bootstrap.servers"], waw.target["bootstrap.servers"]) == ("a:1", "b:1")
    assert (waw.mode, waw.commit_seconds) == (DispatchMode.REAL_TIME, 60)
    [alone] = routes_of(project, project.declared(Dispatcher)["first"], ["par"])
    assert alone == par


def test_without_related_sites_a_route_knows_none(tmp_path):
    project = load(
        tmp_path, FLOW.partition("first =")[0] + 'd = Dispatcher("d", clicks, {"waw": "e"})'
    )
    [route] = routes_of(project, project.declared(Dispatcher)["d"])
    assert route.related is None


def test_in_real_time_mode_partitions_that_are_added_find_a_core(settings, monkeypatch):
    monkeypatch.setattr(dispatchers, "kafka_session", lambda *arguments: arguments[-1])
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    masters = [dispatcher_session(settings, dispatcher(mode=m), 3, {}) for m in DispatchMode]
    assert masters == ["local[24]", settings.spark.master]
