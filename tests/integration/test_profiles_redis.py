"""Profiles in a real Redis: the contracts of stores and sinks, and what its troubles do."""

import json
import random
import signal
import sys
import threading
import uuid
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
import redis
from click.testing import CliRunner
from redis.crc import key_slot
from tests.contracts.profile_store import (
    TTL,
    TTL_US,
    Event,
    ProfileStoreContract,
    change_of,
    profile_of,
)
from tests.integration.profile_project import write_project
from tests.integration.redis_server import RedisServer
from tests.waiting import wait_for

from headrace import Latest, Profiles, Project
from headrace.cli import main
from headrace.errors import (
    NotDeclaredError,
    ProfileStoreAccessError,
    ProfileStoreFullError,
    SinkError,
    SinkUnavailableError,
    TableMismatchError,
)
from headrace.pipelines.profiles.profiles import profile_stores
from headrace.settings import Secret
from headrace.sinks.api import SinkContext
from headrace.sinks.profiles.registry import open_store
from headrace.sinks.profiles.store import ProfileChange
from headrace.testing import SinkContract, SinkLab
from headrace.testing.sink_contract import batch, row

YEARS = timedelta(days=36_500)


@pytest.fixture(scope="module")
def connect(redis_server):
    return lambda: open_store(redis_server.url, "users", TTL)


class TestRedisProfileStore(ProfileStoreContract):
    def test_the_keys_of_a_user_are_in_one_slot_and_all_expire(self, store, user, redis_server):
        now_us = store.now_us()
        name = f"{user}}}:a{{b}}"
        events = [Event(now_us, "views", "e", 1), Event(now_us - 5, "country", "e", 1)]
        store.merge([change_of(name, *events)])
        keys = redis_server.command("KEYS", f"*{user}*")
        assert len(keys) == 3
        assert len({key_slot(key) for key in keys}) == 1
        until_ms = (now_us + TTL_US) // 1_000
        left = [redis_server.command("PTTL", key) for key in keys]
        assert all(0 < each <= until_ms - now_us // 1_000 + 1 for each in left)

    def test_a_row_that_is_too_old_leaves_no_key(self, store, user, redis_server):
        old = store.now_us() - TTL_US
        events = [Event(old, "views", "e", 1), Event(old, "country", "e", 1)]
        store.merge([change_of(user, *events)])
        assert redis_server.command("KEYS", f"*{user}*") == []

    def test_what_is_forgotten_trimmed_or_too_old_is_no_longer_stored(
        self, store, user, redis_server
    ):
        now_us = store.now_us()
        secret = uuid.uuid4().hex
        events = [Event(now_us + n, "views", f"{secret}{n}", secret) for n in range(20)]
        for event in events:
            store.merge([change_of(user, event)])
        assert redis_server.command("HLEN", f"headrace:{{users:{user}}}:views:entries") == 3
        store.merge([change_of(user, Event(now_us + 50, "country", "e", secret))])
        late = [
            change_of(user, Event(at_us, name, secret, secret))
            for at_us in (now_us + 50, now_us - TTL_US)
            for name in ("views", "country")
        ]
        key = f"headrace:{{users:{user}}}"
        for change in (change_of(user, Event(now_us + 50, "")), *late):
            store.merge([change])
            assert redis_server.command("KEYS", f"{key}*") == [key.encode()]
            assert secret not in str(redis_server.command("HGETALL", key))

    def test_a_site_reads_the_latest_entries_with_two_commands(self, store, user, redis_server):
        now_us = store.now_us()
        for number in range(5):
            value = {"item": f"i{number}"}
            store.merge([change_of(user, Event(now_us + number, "views", f"e{number}", value))])
        key = f"headrace:{{users:{user}}}:views"
        ids = redis_server.command("ZREVRANGE", key, "0", "1")
        assert ids == [b"e4", b"e3"]
        entries = redis_server.command("HMGET", f"{key}:entries", *ids)
        assert [json.loads(entry)["item"] for entry in entries] == ["i4", "i3"]

    def test_a_server_that_has_lost_the_script_gets_it_again(self, store, user, redis_server):
        now_us = store.now_us()
        for number in range(3):
            store.merge([change_of(user, Event(now_us + number, "country", "e", number))])
            redis_server.command("SCRIPT", "FLUSH")
        assert store.read(user).fields["country"].value == 2

    def test_a_row_that_is_there_changes_nothing_in_redis(self, store, user, redis_server):
        now_us = store.now_us()
        change = change_of(user, Event(now_us, "views", "e", 1), Event(now_us, "country", "e", 1))
        store.merge([change])
        keys = sorted(redis_server.command("KEYS", f"*{user}*"))
        before = [redis_server.command("DUMP", key) for key in keys]
        store.merge([change, change])
        assert [redis_server.command("DUMP", key) for key in keys] == before


class TestProfiles(SinkContract):
    @pytest.fixture
    def lab(self, redis_server):
        name = f"lab-{uuid.uuid4().hex}"
        sink = Profiles(name, key="id", ttl=YEARS, lists={"all": Latest(5)}, event_time="at")
        context = context_of(redis_server.url)

        def read():
            pattern = f"headrace:{{{name}:*}}:all"
            users = [
                key.decode().split(":")[2][:-1] for key in redis_server.command("KEYS", pattern)
            ]
            with closing(open_store(redis_server.url, name, YEARS)) as store:
                profiles = [store.read(user) for user in users]
            return [
                {"id": int(each.user), "at": entry.event_time, **entry.values}
                for each in profiles
                for entry in each.lists["all"]
            ]

        return SinkLab(sink, context, read, bad_row={**row(9), "id": None})


def context_of(url, event_time="at"):
    return SinkContext("p", "unused", {}, {"url": Secret(url.reveal())}, event_time)


SCHEMA = pa.schema(
    [
        ("user", pa.string()),
        ("event", pa.int64()),
        ("kind", pa.string()),
        ("item", pa.string()),
        ("country", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)


def sink_of(name, **changes):
    declared = {
        "key": "user",
        "ttl": TTL,
        "fields": ("country",),
        "lists": {
            "views": Latest(3, where={"kind": "view"}),
            "clicks": Latest(3, columns=("item",), where={"kind": "click"}),
        },
        "forget": {"kind": "forget"},
        "event_id": "event",
    }
    return Profiles(name, **declared | changes)


def table(rows):
    return pa.Table.from_pylist(rows, SCHEMA)


def load(driver, rows, sizes=(100,)):
    """Writes rows as tasks do, with these numbers of rows in turn; returns those rejected."""
    writer = driver.writers(uuid.uuid4().hex)
    rejected, start, turn = [], 0, 0
    while start < len(rows):
        size = sizes[turn % len(sizes)]
        rejected += writer.write(table(rows[start : start + size]))
        start, turn = start + size, turn + 1
    return rejected, writer.close()


def many_rows(chance, users=5, count=300):
    now = datetime.now(UTC).replace(microsecond=0)
    return [
        {
            "user": f"u{chance.randrange(users)}",
            "event": number // 2,
            "kind": chance.choice(["view", "view", "view", "click", "click", "forget", None]),
            "item": chance.choice(["a", "b", None]),
            "country": chance.choice(["PL", "DE", None]),
            "at": now - timedelta(seconds=chance.randrange(60)),
        }
        for number in range(count)
    ]


@pytest.mark.parametrize("seed", range(5))
def test_two_loaders_that_read_all_rows_in_any_order_make_the_profiles_of_the_reference(
    redis_server, seed
):
    chance, name = random.Random(seed), uuid.uuid4().hex
    rows = many_rows(chance)

    def write(own):
        driver = sink_of(name).open(context_of(redis_server.url), SCHEMA)
        for _ in range(2):
            shuffled = own.sample(rows, len(rows))
            load(driver, shuffled, sizes=(own.randrange(1, 20), 7))

    threads = [threading.Thread(target=write, args=[random.Random(seed + n)]) for n in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with closing(open_store(redis_server.url, name, TTL)) as store:
        for user in {row["user"] for row in rows}:
            events = [each for row in rows if row["user"] == user for each in events_of(row)]
            assert store.read(user) == profile_of(name, user, events, store.now_us())


def events_of(row):
    """What the declaration of ``sink_of`` makes of a row, for the reference."""
    at_us = round(row["at"].timestamp() * 1_000_000)
    event_id, kind = str(row["event"]), row["kind"]
    if kind == "forget":
        yield Event(at_us, "")
        return
    if row["country"] is not None:
        yield Event(at_us, "country", event_id, row["country"])
    if kind is not None:
        columns = ("kind", "item", "country") if kind == "view" else ("item",)
        values = frozendict({column: row[column] for column in columns})
        yield Event(at_us, f"{kind}s", event_id, values)


class frozendict(dict):  # noqa: N801 - the reference puts events into a set
    def __hash__(self):
        return hash(tuple(self.items()))


def profiles(redis_server, name, users):
    with closing(open_store(redis_server.url, name, TTL)) as store:
        read = [store.read(user) for user in users]
    return [each and (each.fields, each.lists, each.forgotten, each.expires) for each in read]


def test_a_shorter_ttl_of_one_writer_brings_nothing_back_to_another(redis_server):
    name, short = uuid.uuid4().hex, timedelta(seconds=1)
    with (
        closing(open_store(redis_server.url, name, TTL)) as store,
        closing(open_store(redis_server.url, name, short)) as shorter,
    ):
        begun_us = store.now_us()
        old = [change_of(user, Event(begun_us - 5, "views", "old", 1)) for user in ("u", "v")]
        store.merge(old)
        store.merge([ProfileChange("v", forgotten_us=begun_us)])
        clicks = [change_of(user, Event(begun_us + 1, "clicks", "c", 1)) for user in ("u", "v")]
        shorter.merge(clicks)
        wait_for(lambda: shorter.read("u") is None)
        # The hash is there for as long as the list that it names, and so is the marker.
        shorter.merge([ProfileChange("u", forgotten_us=store.now_us())])
        shorter.merge([change_of("v", Event(store.now_us(), "clicks", "d", 1))])
        wait_for(lambda: shorter.read("v") is None)
        store.merge(old)
        for user in ("u", "v"):
            assert "views" not in store.read(user).lists


def test_the_documented_rights_are_enough(own_server):
    rights = "+select +eval +evalsha +script|load +time +info +@hash +@sortedset +pttl +pexpireat"
    own_server.command("ACL", "SETUSER", "site", "on", ">secret", "~headrace:*", *rights.split())
    url = f"redis://site:secret@127.0.0.1:{own_server.port}/1"
    with closing(open_store(Secret(url), "users", TTL)) as store:
        now_us = store.now_us()
        events = [Event(now_us, "views", "e", 1), Event(now_us, "country", "e", 1)]
        store.merge([change_of("u", *events), ProfileChange("v", forgotten_us=now_us)])
        assert store.read("u").fields["country"].value == 1
        assert store.prepare() == ""


def test_one_user_with_many_rows_costs_redis_a_list(redis_server):
    name = uuid.uuid4().hex
    now = datetime.now(UTC)
    row = {"user": "u", "kind": "view", "item": "x" * 100, "country": "PL"}
    rows = [{**row, "event": n, "at": now - timedelta(seconds=n)} for n in range(20_000)]
    calls = redis_calls(redis_server)
    load(sink_of(name).open(context_of(redis_server.url), SCHEMA), rows, sizes=(10_000,))
    assert redis_calls(redis_server) - calls == 2
    [(_, lists, _, _)] = profiles(redis_server, name, ["u"])
    assert [entry.event_id for entry in lists["views"]] == ["0", "1", "2"]


def redis_calls(server):
    stats = server.command("INFO", "commandstats")
    return stats.get("cmdstat_evalsha", {"calls": 0})["calls"]


def test_rows_that_have_expired_are_counted_and_rows_that_forget_too(redis_server):
    now = datetime.now(UTC)
    row = {"user": "u", "event": 1, "kind": "view", "at": now}
    rows = [row, {**row, "at": now - TTL}, {**row, "at": now - 2 * TTL}, {**row, "kind": "forget"}]
    driver = sink_of(uuid.uuid4().hex).open(context_of(redis_server.url), SCHEMA)
    rejected, pieces = load(driver, rows)
    done = driver.commit(pieces, batch(0), 0)
    assert (rejected, done.rows) == ([], 2)
    assert done.figures == {"profile_expired_rows": 2, "profile_forget_rows": 1}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"user": None}, "bad-key"),
        ({"user": ""}, "bad-key"),
        ({"user": "ż" * 513}, "bad-key"),
        ({"at": None}, "missing-value"),
        ({"event": None}, "missing-value"),
        ({"at": datetime(1800, 1, 1, tzinfo=UTC)}, "wrong-value"),
        ({"at": datetime(2200, 1, 1, tzinfo=UTC)}, "wrong-value"),
        ({"item": "x" * 70_000}, "row-too-large"),
        ({"country": "x" * 70_000}, "row-too-large"),
    ],
)
def test_a_row_that_can_not_be_taken_leaves_nothing(redis_server, changes, reason):
    name = uuid.uuid4().hex
    row = {"user": "u", "event": 1, "kind": "view", "country": "PL", "at": datetime.now(UTC)}
    driver = sink_of(name).open(context_of(redis_server.url), SCHEMA)
    rejected, _ = load(driver, [row | changes, {**row, "user": "v"}])
    assert [(each.index, each.reason) for each in rejected] == [(0, reason)]
    assert rejected[0].detail
    assert len(redis_server.command("KEYS", f"*{{{name}:*}}")) == 1


def test_every_row_forgets_where_that_is_declared(redis_server):
    name = uuid.uuid4().hex
    context = context_of(redis_server.url)
    now = datetime.now(UTC)
    row = {"user": "u", "event": 1, "kind": "view", "country": "PL", "at": now}
    load(sink_of(name).open(context, SCHEMA), [row, {**row, "user": "v"}])
    requests = sink_of(name, fields=(), lists={}, forget=True)
    load(requests.open(context, SCHEMA), [{"user": "u", "event": 2, "at": now}])
    forgotten, other = profiles(redis_server, name, ["u", "v"])
    assert forgotten[:3] == ({}, {}, now)
    assert other[0]["country"].value == "PL"


def test_events_without_ids_are_known_by_their_time_and_values(redis_server):
    name = uuid.uuid4().hex
    now = datetime.now(UTC)
    row = {"user": "u", "kind": "view", "item": "a", "at": now}
    rows = [row, row, {**row, "item": "b"}, {**row, "at": now - timedelta(seconds=1)}]
    load(sink_of(name, event_id=None).open(context_of(redis_server.url), SCHEMA), rows * 2)
    [(_, lists, _, _)] = profiles(redis_server, name, ["u"])
    assert sorted(entry.values["item"] for entry in lists["views"]) == ["a", "a", "b"]


def test_rows_without_a_column_are_refused_before_anything_is_written(redis_server):
    schema = SCHEMA.remove(SCHEMA.get_field_index("country"))
    with pytest.raises(TableMismatchError, match="'country' is no column of the rows"):
        sink_of("x").open(context_of(redis_server.url), schema)
    with pytest.raises(TableMismatchError, match=r"Profiles\.key: 'at' is timestamp"):
        sink_of("x", key="at").open(context_of(redis_server.url), SCHEMA)


@pytest.fixture
def own_server(tmp_path, stop_at_end):
    server = RedisServer(tmp_path, password="the-right-one")
    stop_at_end(server.folder)
    server.start()
    yield server
    server.kill()


def opened(server, **options):
    query = "&".join(f"{name}={value}" for name, value in options.items())
    return open_store(Secret(f"{server.url.reveal()}?{query}"), "users", TTL)


def write_to(store):
    now_us = store.now_us()
    store.merge(
        change_of(f"u{n}", Event(now_us, "country", "e", "x" * 1_000)) for n in range(3_000)
    )


def test_a_server_that_is_killed_may_come_back(own_server):
    with closing(opened(own_server)) as store:
        write_to(store)
        own_server.kill()
        with pytest.raises(SinkUnavailableError):
            write_to(store)
        own_server.start()
        write_to(store)
        assert store.read("u2999") is not None


def test_a_server_that_does_not_respond_is_waited_for_until_the_time_out(own_server):
    with closing(opened(own_server, socket_timeout=5)) as store:
        now_us = store.now_us()
        own_server.signal(signal.SIGSTOP)
        try:
            with pytest.raises(SinkUnavailableError, match=r"[Tt]imeout"):
                store.merge([change_of("u", Event(now_us, "country", "e", 1))])
        finally:
            own_server.signal(signal.SIGCONT)
        store.merge([change_of("u", Event(now_us, "country", "e", 1))])
        assert store.read("u") is not None


def test_a_full_server_is_named_with_a_remedy_and_takes_the_rows_later(own_server):
    with closing(opened(own_server)) as store:
        write_to(store)
        own_server.command("CONFIG", "SET", "maxmemory", "1mb")
        with pytest.raises(ProfileStoreFullError, match="Raise `maxmemory`"):
            write_to(store)
        own_server.command("CONFIG", "SET", "maxmemory", "0")
        write_to(store)


def test_a_full_redis_still_forgets(own_server):
    with closing(opened(own_server)) as store:
        now_us = store.now_us()
        store.merge([change_of("u", Event(now_us, "views", "e", 1), Event(now_us, "country", "e"))])
        own_server.command("CONFIG", "SET", "maxmemory", "1mb")
        store.merge([ProfileChange("u", forgotten_us=now_us)])
        profile = store.read("u")
        assert (profile.fields, profile.lists) == ({}, {})
        assert own_server.command("KEYS", "*") == [b"headrace:{users:u}"]


def test_a_state_that_passes_is_waited_for(own_server):
    with closing(opened(own_server)) as store:
        own_server.command("CONFIG", "SET", "min-replicas-to-write", "1")
        with pytest.raises(SinkUnavailableError, match="NOREPLICAS"):
            write_to(store)
        own_server.command("CONFIG", "SET", "min-replicas-to-write", "0")
        write_to(store)


def test_a_replica_takes_rows_when_it_is_the_primary(own_server):
    with closing(opened(own_server)) as store:
        own_server.command("REPLICAOF", "127.0.0.1", "1")
        with pytest.raises(SinkUnavailableError, match="read only replica"):
            write_to(store)
        assert store.read("u") is None
        own_server.command("CONFIG", "SET", "replica-serve-stale-data", "no")
        with pytest.raises(SinkUnavailableError, match="MASTER is down"):
            store.read("u")
        own_server.command("REPLICAOF", "NO", "ONE")
        write_to(store)


@pytest.mark.parametrize("user", [":the-wrong-one", "", "reader:secret"])
def test_a_user_who_may_not_write_is_told_what_is_needed(own_server, user):
    own_server.command("ACL", "SETUSER", "reader", "on", ">secret", "~*", "+time", "+info")
    url = f"redis://{user}@127.0.0.1:{own_server.port}/0"
    store = open_store(Secret(url), "users", TTL)
    with (
        closing(store),
        pytest.raises(ProfileStoreAccessError, match="user and password") as raised,
    ):
        write_to(store)
    assert "the-wrong-one" not in str(raised.value)


@pytest.mark.parametrize("url", ["redis://h:port/0", "http://127.0.0.1:1/", "cache"])
def test_an_address_that_is_none_is_an_error_that_does_not_show_it(url):
    with pytest.raises(SinkError) as raised:
        open_store(Secret(url), "users", TTL)
    assert url not in str(raised.value)


def test_a_server_that_removes_keys_is_warned_of(own_server, caplog):
    sink, context = sink_of("users"), context_of(own_server.url)
    sink.open(context, SCHEMA)
    assert caplog.text == ""
    own_server.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    sink.open(context, SCHEMA)
    assert "allkeys-lru" in caplog.text


def test_a_server_that_is_busy_with_a_script_of_others_is_waited_for(own_server):
    own_server.command("CONFIG", "SET", "lua-time-limit", "50")
    url = own_server.url.reveal()
    with redis.Redis.from_url(url) as other, closing(opened(own_server)) as store:
        now_us = store.now_us()
        endless = threading.Thread(target=ended_script, args=[other])
        endless.start()
        wait_for(lambda: is_busy(own_server))
        with pytest.raises(SinkUnavailableError, match="BUSY"):
            store.merge([change_of("u", Event(now_us, "country", "e", 1))])
        own_server.command("SCRIPT", "KILL")
        endless.join()
        store.merge([change_of("u", Event(now_us, "country", "e", 1))])


def ended_script(client):
    with pytest.raises(redis.exceptions.ResponseError):
        client.eval("while true do end", 0)


def is_busy(server):
    try:
        server.command("GET", "any")
    except redis.exceptions.ResponseError:
        return True
    return False


def test_a_key_of_others_is_an_error_and_stays(own_server):
    own_server.command("SET", "headrace:{users:u0}", "theirs")
    with (
        closing(opened(own_server)) as store,
        pytest.raises(SinkError, match="WRONGTYPE") as raised,
    ):
        write_to(store)
    assert type(raised.value) is SinkError
    assert own_server.command("GET", "headrace:{users:u0}") == b"theirs"


def test_a_pipeline_does_not_start_where_nothing_responds(own_server):
    own_server.kill()
    with pytest.raises(SinkUnavailableError):
        sink_of("users").open(context_of(own_server.url), SCHEMA)
    own_server.start()


def test_an_attempt_that_was_cut_off_is_repeated_without_a_trace(own_server):
    driver = sink_of("users").open(context_of(own_server.url), SCHEMA)
    now = datetime.now(UTC)
    row = {"user": "u", "kind": "view", "item": "a", "country": "PL"}
    rows = [{**row, "event": n, "at": now - timedelta(seconds=n)} for n in range(9)]
    cut_off = driver.writers("a" * 32)
    cut_off.write(table(rows[:5]))
    cut_off.abort()
    driver.discard([])
    load(driver, rows)
    first = profiles(own_server, "users", ["u"])
    load(driver, rows[::-1], sizes=(1,))
    assert profiles(own_server, "users", ["u"]) == first


@pytest.fixture
def project(tmp_path, redis_server):
    """The folder of a project with a store of its own, which has a profile of user 7."""
    store = uuid.uuid4().hex
    (tmp_path / "redis-url").write_text(redis_server.url.reveal())
    write_project(tmp_path, store, '{ file = "redis-url" }')
    with closing(open_store(redis_server.url, store, timedelta(days=1))) as opened:
        opened.merge([change_of("7", Event(opened.now_us(), "item", "", "shoes"))])
    return tmp_path


def test_a_profile_is_shown_by_a_command_and_to_programs(project, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    loaded = Project.open(project)
    [store] = profile_stores(loaded._loaded)
    assert loaded.profile(store, 7).fields["item"].value == "shoes"
    assert loaded.profile(store, 8) is None
    with pytest.raises(NotDeclaredError, match=store):
        loaded.profile("sites", 7)
    shown = CliRunner().invoke(main, ["profile", "7", "--json", "--project", str(project)])
    assert json.loads(shown.stdout)["fields"]["item"]["value"] == "shoes"
    missing = CliRunner().invoke(main, ["profile", "8", "--project", str(project)])
    assert (missing.exit_code, "user '8'" in missing.output) == (1, True)
