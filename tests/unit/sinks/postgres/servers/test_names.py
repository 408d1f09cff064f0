"""Servers that ``[sinks.postgres]`` names: what ``check`` finds, and which are one."""

import pickle

import pytest

from headrace import ByServer, Count, Postgres, Secret, Stats
from headrace.sinks.postgres.servers.address import product_at, url_of

PASSWORD = "hush-hush"
URLS = {
    "url": f"postgresql://app:{PASSWORD}@db/items",
    "eu.url": f"postgresql://app:{PASSWORD}@db-eu/items",
    "copy.url": f"postgresql://app:{PASSWORD}@db/items",
}
SETTINGS = {name: Secret(url) for name, url in URLS.items()}


@pytest.mark.parametrize(
    ("server", "needed", "message"),
    [
        (None, ("url",), None),
        ("eu", (), None),
        ("us", (), "Postgres.server is 'us', and there is no [sinks.postgres.us]"),
    ],
)
def test_a_server_must_be_named_by_the_project(server, needed, message):
    sink = Postgres("t", server=server)
    assert sink.needed_settings == needed
    faults = list(sink.settings_faults(SETTINGS))
    assert [fault.message for fault in faults] == [message] * (message is not None)
    assert all(fault.remedy.startswith("one of copy, eu; or ") for fault in faults)


def test_statistics_are_at_a_server_too():
    sink = Stats("t", by=(), every=None, measures={"n": Count()}, server="us")
    assert (sink.needed_settings, sink.label) == ((), "postgres t at us")
    assert sink.resolved_target(SETTINGS) == "public.t at us"
    [fault] = sink.settings_faults({})
    assert fault.message == "Stats.server is 'us', and there is no [sinks.postgres.us]"
    assert fault.remedy.startswith("none is named; or ")


def test_a_table_of_a_server_has_an_address_and_nothing_else():
    [fault] = Postgres("t").settings_faults(SETTINGS | {"eu.user": Secret("app")})
    assert fault.message == "sinks.postgres.eu.user is no setting"
    assert fault.remedy == "sinks.postgres.eu.url"


@pytest.mark.parametrize(
    ("server", "label", "resolved"),
    [
        (None, "postgres t", "public.t"),
        ("eu", "postgres t at eu", "public.t at eu"),
        ("copy", "postgres t at copy", "public.t"),
        ("us", "postgres t at us", "public.t at us"),
    ],
)
def test_tables_of_one_address_are_one_target(server, label, resolved):
    sink = Postgres("t", server=server)
    assert (sink.target, sink.label) == ("t", label)
    assert sink.resolved_target(SETTINGS) == resolved


def test_two_names_of_one_address_alone_are_one_target():
    settings = {"a.url": SETTINGS["url"], "b.url": SETTINGS["url"]}
    targets = {Postgres("t", server=name).resolved_target(settings) for name in "ab"}
    assert targets == {"public.t at a"}


def test_an_address_says_its_server_and_nothing_of_itself():
    url = pickle.loads(pickle.dumps(url_of(SETTINGS, "eu")))
    assert url.reveal() == URLS["eu.url"]
    assert (product_at(url), product_at(url_of(SETTINGS, None))) == ("PostgreSQL eu", "PostgreSQL")
    assert PASSWORD not in f"{url} {url!r} {SETTINGS}"


def test_names_that_divide_rows_have_an_address_of_their_own_each():
    sharding = ByServer("account", {"acme": "eu", "globex": "twin"})
    settings = SETTINGS | {"twin.url": SETTINGS["eu.url"]}
    [fault] = Postgres("t", server=sharding).settings_faults(settings)
    assert fault.message == "Postgres.server names 'eu' and 'twin', which have one address"
