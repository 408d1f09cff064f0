"""Every record of a dirty batch leaves by a door with a name, by hand and by the ledger.

Late, behind the watermark, duplicate, conflicting, invalid, null, oversized: what came in is what
is in the sink, in the side table, in the dead letters, or was counted as what was asked for.
"""

import json
import uuid
from collections import Counter
from contextlib import closing
from dataclasses import replace
from datetime import timedelta

import pytest
from tests.integration.flow import NOW_MS, Flow, click
from tests.integration.test_enrich import Reference
from tests.integration.test_join import Site
from tests.integration.test_ledger import balance, totals
from tests.integration.test_pipeline_sinks import Database
from tests.integration.test_sinks import records
from tests.kafka_topics import make_topic

from headrace import (
    BigQuery,
    Count,
    Kafka,
    Lake,
    LateData,
    Match,
    OpenSearch,
    Postgres,
    Profiles,
    Stats,
    Topic,
    Unique,
    WriteMode,
    classify,
    count_windows,
    deduplicate,
    fan_out,
    filter_rows,
)
from headrace.ledger.sums import Fate
from headrace.ledger.windows import WindowState
from headrace.service.status import State
from headrace.settings import Secret
from headrace.sinks.profiles.registry import open_store

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
HOUR_MS, MINUTE_MS = 3_600_000, 60_000
COLUMNS = "event_id text, event_time timestamptz, category varchar(20), n int, price float8"

CLEAN = [click(n, event_time=NOW_MS - 2 * HOUR_MS + n * MINUTE_MS) for n in range(60)]
INVALID = [
    b"not json",
    None,
    b'{"event_id": "x"}',
    click(200, n="many"),
    click(201, event_time=None),
]
OVERSIZED = "y" * 1_500_000
VALID = [
    *(click(n, event_time=NOW_MS - 30 * HOUR_MS) for n in range(300, 307)),
    *(click(n) for n in range(100, 110)),
    *[click(100)] * 2,
    *CLEAN[50:],
    click(101, n=9_101),
    click(110, price=None),
    click(111, category="../elsewhere"),
    click(112, category="longer than the column of the table"),
    click(113, event_id=OVERSIZED),
]
EVENTS = [json.loads(event) for event in (*CLEAN, *VALID)]
IDS = {event["event_id"] for event in EVENTS}
SENT = len(EVENTS) + len(INVALID)
REJECTED = Counter(["not-json", "null-value", "missing-field", "wrong-type", "wrong-type"])
REPEATED = len(EVENTS) - len({*CLEAN, *VALID})


@pytest.fixture
def flow(broker, spark, tmp_path):
    return Flow(broker, spark, tmp_path, partitions=1, event_id="event_id")


def ran(flow, *pipelines):
    """Runs pipelines until they have read all; returns the figures of each."""
    figures = {}
    for name, outcome in flow.run(*pipelines).items():
        assert outcome.state is State.FINISHED, outcome.reason
        values = outcome.to_json()
        figures[name] = Counter({k: v for k, v in values.items() if isinstance(v, int)})
    return figures


def ran_twice(flow, *pipelines):
    """Figures of pipelines over a clean batch and a dirty one, added up."""
    flow.send(CLEAN)
    first = ran(flow, *pipelines)
    flow.send([*INVALID, *VALID])
    second = ran(flow, *pipelines)
    return {name: first[name] + second[name] for name in first}


def letters(flow, pipelines, *topics):
    """How many dead letters each pipeline has, by reason."""
    dead = {pipeline.name: Counter() for pipeline in pipelines}
    for topic in topics:
        for stored in flow.dead(topic):
            dead[stored.pipeline][stored.letter.reason] += 1
    return dead


def rejected(dead):
    """The dead letters beside those of the records that every pipeline rejects."""
    return {name: more for name, reasons in dead.items() if (more := reasons - REJECTED)}


def doors(figures, **others):
    """How many left by each door, by hand; those that none took are left out."""
    by_name = {
        "filtered": figures["filtered_rows"] + figures["fan_out_dropped_rows"],
        "deduplicated": sum(
            figures[f"{kind}_rows"]
            for kind in ("duplicate", "lake_duplicate", "postgres_duplicate")
        ),
        "dropped": figures["dropped_by_watermark_rows"],
    }
    return {door: number for door, number in (by_name | others).items() if number}


def ledger_doors(flow, pipeline, sent=SENT):
    result = balance(flow, pipeline)
    differences = [window.differences for window in result.windows if window.differences]
    states = {window.state for window in result.windows}
    assert not {WindowState.UNBALANCED, WindowState.UNKNOWN} & states, differences
    fates = totals(result)
    assert fates.pop("read") == sum(fates.values()) == sent
    dead = [Fate.DEAD, Fate.BEHIND]
    dead += [Fate.LATE] if pipeline.late_data is LateData.DEAD_LETTER else []
    number = sum(fates.pop(fate, 0) for fate in dead)
    return {fate.value: number for fate, number in fates.items()} | {"letters": number}


def ones(rows):
    return rows.selectExpr("n", "1 AS clicks")


def windows_left(within_ms):
    """Events in windows of a minute that are open at the end: those of the newest times."""
    times = [event["event_time"] for event in EVENTS]
    ends = [time // MINUTE_MS * MINUTE_MS + MINUTE_MS for time in times]
    return sum(end > max(times) - within_ms for end in ends)


def test_every_row_leaves_an_operator_by_a_door(flow):
    reference = Reference(flow)
    reference.put(c0="zero", c1="one")
    unique = deduplicate(["event_id"], HOUR)
    declared = {
        "letters": {"late_data": LateData.DEAD_LETTER},
        "side": {"late_data": Lake("late")},
        "dropping": {"late_data": LateData.DROP},
        "filtered": {"steps": [filter_rows({"even": "n % 2 = 0"})]},
        "classified": {"steps": [classify("kind", {"even": "n % 2 = 0"})]},
        "fanned": {"steps": [fan_out("to", {"even": "n % 2 = 0", "third": "n % 3 = 0"})]},
        "enriched": {"steps": [reference.step]},
        "unique": {"steps": [unique]},
        "unique-side": {"steps": [unique], "late_data": Lake("too_late")},
        "unique-dropping": {
            "steps": [unique],
            "late_data": LateData.DROP,
            "allowed_lateness": 100 * HOUR,
        },
        "windows": {"steps": [count_windows(MINUTE, within=MINUTE)]},
    }
    pipelines = [
        flow.pipeline(
            name,
            sink=Lake(name, partition_by=() if name == "windows" else ("category",)),
            **changes,
        )
        for name, changes in declared.items()
    ]
    figures, dead = ran_twice(flow, *pipelines), letters(flow, pipelines, flow.name)
    by_hand = {
        name: doors(figures[name], out=len(flow.rows(name)), letters=dead[name].total())
        for name in declared
    }
    by_hand["side"]["late"] = len(flow.rows("late"))
    by_hand["unique-side"]["late"] = len(flow.rows("too_late"))
    by_hand["dropping"]["dropped"] = figures["dropping"]["late_rows"]
    by_hand["fanned"]["copied"] = -sum(event["n"] % 6 == 0 for event in EVENTS)
    written = sum(row["count"] for row in flow.rows("windows"))
    by_hand["windows"]["out"] = written + windows_left(MINUTE_MS)
    assert {name: sum(taken.values()) for name, taken in by_hand.items()} == (
        dict.fromkeys(declared, SENT)
    )
    unsafe, behind = Counter(["unsafe-partition-value"]), Counter({"behind-watermark": 7})
    expected = dict.fromkeys(declared, unsafe) | {
        "letters": unsafe + Counter({"late-event": 7}),
        "unique": unsafe + behind,
        "windows": Counter({"behind-watermark": 15}),
    }
    assert rejected(dead) == expected
    for pipeline in pipelines[:-1]:  # which rows are in a window is unknown to the ledger
        assert ledger_doors(flow, pipeline) == by_hand[pipeline.name]


def test_every_row_leaves_a_sink_by_a_door(flow, postgres, redis_server, opensearch, bigquery):
    database = Database(flow, postgres.create_database(f"doors_{uuid.uuid4().hex[:8]}"), COLUMNS)
    for table in ("newest", "once"):
        database.execute(f"CREATE TABLE {table} ({COLUMNS}, PRIMARY KEY (event_id))")
    database.execute("CREATE TABLE added (n int PRIMARY KEY, clicks bigint)")
    flow.sinks["profiles"] = {"url": redis_server.url}
    flow.sinks["opensearch"] = {"url": Secret(opensearch.url)}
    flow.sinks["bigquery"] = bigquery.settings
    appended = f"doors_{uuid.uuid4().hex[:8]}"
    target = Topic(f"{flow.name}-out", event=flow.topic.event, event_id="event_id")
    make_topic(flow.client, target.name, 1)
    unique = Unique(by=["event_id"], within=100 * HOUR)
    counts = {"by": ("n",), "every": MINUTE, "measures": {"clicks": Count()}}
    day = timedelta(days=1)
    sinks = {
        "lake-unique": Lake("unique", unique=unique),
        "append": Postgres("clicks"),
        "append-unique": Postgres("once", unique=Unique(by=["event_id"])),
        "upsert": Postgres(
            "newest", mode=WriteMode.UPSERT, key=("event_id",), newest_by="event_time"
        ),
        "add": Postgres("added", mode=WriteMode.ADD, key=("n",)),
        "stats": Stats("per_minute", **counts),
        "stats-unique": Stats("once_per_minute", **counts, unique=unique),
        "topic": Kafka(target),
        "profiles": Profiles(flow.name, key="event_id", ttl=day, fields=("n",)),
        "documents": OpenSearch(flow.name, unique=Unique(by=["event_id"])),
        "appended": BigQuery(appended),
    }
    pipelines = [
        flow.pipeline(name, sink=sink, steps=[ones] if name == "add" else [])
        for name, sink in sinks.items()
    ]
    figures, dead = ran_twice(flow, *pipelines), letters(flow, pipelines, flow.name)

    def number(of, table):
        [(found,)] = database.execute(f"SELECT {of}::int FROM {table}")
        return found

    with closing(open_store(redis_server.url, flow.name, day)) as store:
        profiles = sum(store.read(event_id) is not None for event_id in IDS)
    replaced = len(EVENTS) - len(IDS)
    out = {
        "lake-unique": len(flow.rows("unique")),
        "append": number("count(*)", "clicks"),
        "append-unique": number("count(*)", "once"),
        "upsert": number("count(*)", "newest") + REPEATED,
        "add": number("sum(clicks)", "added"),
        "stats": number("sum(clicks)", "per_minute"),
        "stats-unique": number("sum(clicks)", "once_per_minute"),
        "topic": len(records(flow.client, target.name)),
        "profiles": profiles + replaced + figures["profiles"]["profile_expired_rows"],
        "appended": int(bigquery.query(f"SELECT COUNT(*) FROM {appended}")[0][0]),
        "documents": opensearch.count(flow.name) + figures["documents"]["opensearch_repeated_rows"],
    }
    by_hand = {
        name: doors(figures[name], out=out[name], letters=dead[name].total()) for name in sinks
    }
    assert {name: sum(taken.values()) for name, taken in by_hand.items()} == (
        dict.fromkeys(sinks, SENT)
    )
    conflict, unfit = Counter(["conflicting-key"]), Counter(["wrong-value"])
    too_large = Counter(["row-too-large"])
    expected = {
        "lake-unique": conflict,
        "append": unfit,
        "append-unique": conflict + unfit + too_large,
        "upsert": conflict + unfit + too_large,
        "stats-unique": conflict,
        "topic": Counter(["rejected-by-kafka"]),
        "profiles": Counter(["bad-key"]),
        "documents": Counter(["bad-key"]),
    }
    assert rejected(dead) == expected
    for pipeline in pipelines:
        assert ledger_doors(flow, pipeline) == by_hand[pipeline.name]


def test_every_event_leaves_a_join_by_a_door(flow):
    """An earlier event has no row of its own: those that are kept are what was sent of them."""
    site = Site(flow, event_id="id")
    declared = {
        "matched": (Match.ID, {"unmatched": Lake("unmatched")}, 61),
        "all": (Match.ID, {}, 61),
        "last": (Match.LAST, {}, 63),
        "filtered": (Match.ID, {"steps": [filter_rows({"short": "length(id) = 2"})]}, 61),
    }
    pipelines, kept = [], {}
    for name, (match, changes, number) in declared.items():
        pipeline = site.pipeline(name, match=match, **changes)
        pipelines.append(replace(pipeline, sink=Lake(name, partition_by=("user",))))
        kept[name] = number
    views = [site.impression(n) for n in range(60)]
    clicks = [site.click(n) for n in range(0, 60, 4)]
    site.send(site.impressions, views)
    site.send(site.clicks, clicks)
    first = ran(flow, *pipelines)
    more_views = [
        views[7],
        views[9] | {"price": 99.0},
        site.impression(61, price="none"),
        site.impression(62, minute=-1_000),
        site.impression(63, minute=60, id=OVERSIZED),
    ]
    more_clicks = [
        clicks[0],
        clicks[1] | {"user": "../elsewhere"},
        *(site.click(n, minute=5, impression_id="none") for n in range(70, 77)),
        site.click(80, impression_id=3),
        site.click(90),
        site.click(91, minute=-1_000),
        site.click(3, id=OVERSIZED),
    ]
    site.send(site.impressions, more_views)
    site.send(site.clicks, more_clicks)
    for topic in (site.impressions, site.clicks):
        flow.send([None, b"not json"], topic=topic.name)
    second = ran(flow, *pipelines)
    dead = letters(flow, pipelines, site.impressions.name, site.clicks.name)
    sent = sum(map(len, (views, clicks, more_views, more_clicks))) + 4
    by_hand = {}
    for name in declared:
        figures = first[name] + second[name]
        by_hand[name] = doors(
            figures,
            out=len(flow.rows(name)),
            letters=dead[name].total(),
            kept=kept[name],
            expired=1,
            deduplicated=figures["join_repeated_events"],
            waiting=second[name]["join_waiting_events"],
        )
    by_hand["matched"]["unmatched"] = len(flow.rows("unmatched"))
    assert {name: sum(taken.values()) for name, taken in by_hand.items()} == (
        dict.fromkeys(declared, sent)
    )
    for pipeline in pipelines:
        assert ledger_doors(flow, pipeline, sent) == by_hand[pipeline.name]
