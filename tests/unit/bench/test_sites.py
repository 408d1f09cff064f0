"""The pure parts of the benchmarks of profiles and of a link that is cut."""

import json

import pytest
from bench import cut_link, loader
from bench.cluster import Broker
from bench.cut_link import CatchUp, Sites, lags
from bench.driver import OutputWrongError, SystemFailedError
from bench.headrace_profiles import USERS, View, views
from bench.live_traffic import Arrival, quantile
from bench.loader import Content, Expected, placed_views
from bench.report import PAGE

from headrace import Mirror
from headrace.kafka.embedded.layout import read_layout
from headrace.model import event_schema
from headrace.project.check import load_project
from headrace.settings import load_settings

FIELDS = set(event_schema(View).names)


def view(event_time, event_id, **columns):
    columns = {"item_id": 1, "campaign": "c", "user_group": "g"} | columns
    return {"event_time": event_time, "event_id": event_id, **columns}


def test_the_events_are_the_same_ones_in_every_run_and_name_their_user():
    first, again = list(views(200)), list(views(200))
    assert first == again
    for user, value in first:
        event = json.loads(value)
        assert set(event) == FIELDS
        assert event["user_id"] == f"u{user}"
        assert user < USERS


def test_the_topic_has_all_users_and_a_user_is_in_one_partition():
    expected = Expected()
    records = list(placed_views(3_000, expected))
    assert {key for _, key, _ in records} == {f"u{user}".encode() for user in expected.users}
    assert len({(partition, key) for partition, key, _ in records}) == len(expected.users)
    assert sum(map(len, expected.sampled.values())) > 50
    assert all(user % loader.SAMPLE_EVERY == 0 for user in expected.sampled)


def test_the_greatest_event_time_and_then_the_greatest_id_is_the_newest():
    events = [view(n, f"e{n}", item_id=n) for n in range(12)]
    events += [view(11, "z", item_id=7, user_group="newest"), view(11, "a")]
    content = Content.of_events(events)
    assert content.group == "newest"
    assert [event_id for event_id, _ in content.views[:3]] == ["z", "e11", "a"]
    assert content.views[0] == ("z", {"item_id": 7, "campaign": "c"})
    assert len(content.views) == 10


def test_a_user_missing_or_unknown_in_redis_fails(monkeypatch):
    monkeypatch.setattr(loader, "profile_keys", lambda _: {"headrace:{users:u1}"})
    for users in ({1, 2}, {2}, set()):
        with pytest.raises(OutputWrongError, match="missing or unknown"):
            loader.check(None, Expected(users))


def test_lag_is_that_of_the_records_produced_in_a_phase():
    taken = [Arrival(sent_us, float(sent_us)) for sent_us in range(300)]
    before, cut = lags(taken, [0, 100, 250])
    assert before == {"p50_ms": 49, "p99_ms": 98, "max_ms": 99}
    assert cut["max_ms"] == 249
    with pytest.raises(SystemFailedError, match="no record"):
        lags(taken, [300, 400])


def test_quantiles_are_values_that_were_measured():
    assert [quantile([1.0, 2.0, 3.0], share) for share in (0.01, 0.5, 0.99)] == [1, 2, 3]


def test_the_rate_of_catching_up_leaves_out_the_time_until_the_first_commit():
    found = CatchUp(copied=1_000, seconds=5.0, copying_seconds=2.0).figures()
    assert found == {"caught_up_after_seconds": 5.0, "backlog_messages_per_second": 500.0}


def test_the_project_of_the_central_site_reaches_the_cut_site_through_the_forwarder(tmp_path):
    brokers = {name: Broker(f"127.0.0.1:{port}", 1) for name, port in (("live", 2), ("cut", 3))}
    addresses = {"live": "127.0.0.1:2", "cut": "127.0.0.1:4"}
    sites = Sites(Broker("127.0.0.1:1", 1), brokers, addresses, link=None)
    for name, text in cut_link.project(sites).items():
        (tmp_path / name).write_text(text)
    settings = load_settings(tmp_path, {})
    assert settings.sites["cut"].bootstrap_servers == "127.0.0.1:4"
    mirrors = load_project(settings).declared(Mirror)
    assert {name: mirror.source for name, mirror in mirrors.items()} == {
        "live": "live",
        "cut": "cut",
    }
    assert {topic.name for mirror in mirrors.values() for topic in mirror.topics.values()} == {
        "live.clicks",
        "cut.clicks",
    }


def test_a_broker_has_a_listener_for_the_link_beside_its_own(tmp_path):
    config = cut_link.second_listener(tmp_path, 11, 12)
    [broker] = read_layout(tmp_path / "kafka").brokers
    own = f"PLAINTEXT://127.0.0.1:{broker.port}"
    assert config["listeners"].startswith(own)
    assert config["listeners"].endswith(",LINK://127.0.0.1:11")
    assert config["advertised.listeners"] == f"{own},LINK://127.0.0.1:12"


@pytest.mark.parametrize("benchmark", [loader.BENCHMARK, cut_link.BENCHMARK])
def test_the_page_has_a_place_for_each_table(benchmark):
    text = PAGE.read_text()
    assert f"<!-- {benchmark}: begin -->" in text
    assert f"<!-- {benchmark}: end -->" in text
