"""The pure parts of the benchmarks of event flow."""

import json
from collections import Counter
from datetime import timedelta
from statistics import median

import pytest
from bench.driver import OutputWrongError
from bench.events import DISORDER_MS, Impression, events
from bench.flow import flink_flow, join_latency, stats
from bench.flow.__main__ import PARTS, main
from bench.flow.events import DELAY, REPEAT_BEHIND, Click, Traffic, repeats, with_repeats
from bench.flow.join_month import HOUR, RATE, with_rates
from bench.flow.ledger import OVERHEAD, WITHOUT, Ledger
from bench.flow.part import OURS, growth
from bench.flow.times import Times
from bench.peers.contest import Findings
from bench.peers.figures import Measurement, Run
from bench.report import PAGE
from bench.setup import Setup

from headrace.model import event_schema
from headrace.runtime.process_tree import Usage

TIMES = Times(within=timedelta(hours=1), wait=timedelta(minutes=2))
MONTH = Traffic(24_000, 4, timedelta(days=30), timedelta(days=29), name="month")
TRAFFIC = [Traffic(24_000, 4), MONTH]


def values(records):
    return [json.loads(value) for _, _, value in records]


@pytest.fixture(params=TRAFFIC, ids=["hours", "month"])
def traffic(request):
    return request.param


def test_the_same_clicks_come_in_every_run_with_the_declared_fields(traffic):
    made = list(traffic.click_records())
    assert list(traffic.click_records()) == made
    assert all(tuple(click) == event_schema(Click).names for click in values(made))
    assert len(made) == traffic.clicks == traffic.count // 20


def test_so_many_clicks_as_told_name_no_impression_and_the_others_are_in_its_partition(traffic):
    shown = {key.decode(): place for place, key, _ in traffic.impression_records()}
    found = Counter()
    for partition, key, value in traffic.click_records():
        assert json.loads(value)["impression_id"] == key.decode()
        found[shown.get(key.decode(), partition) == partition, key.decode() in shown] += 1
    matched = traffic.clicks - traffic.unmatched
    assert found == {(True, True): matched, (True, False): traffic.unmatched}
    assert traffic.unmatched == 10  # one in a hundred, of five sixths


def test_clicks_come_in_order_of_time_after_their_impressions_and_before_the_end(traffic):
    shown = {item["event_id"]: item["event_time"] for item in values(traffic.impression_records())}
    clicks = values(traffic.click_records())
    times = [click["event_time"] for click in clicks]
    assert times == sorted(times)
    delays = [
        timedelta(milliseconds=click["event_time"] - shown[click["impression_id"]])
        for click in clicks
        if click["impression_id"] in shown
    ]
    assert timedelta(0) < min(delays)
    assert sum(delay > DELAY for delay in delays) == (120 if traffic is MONTH else 0)
    end = min(shown.values()) + traffic.span / timedelta(milliseconds=1) + DISORDER_MS
    assert times[-1] < end


def test_every_partition_has_clicks_also_unmatched_ones(traffic):
    """A topic with an empty partition would hold back the watermarks of some systems."""
    places = Counter(place for place, _, _ in traffic.click_records())
    unmatched = Counter(place for place, key, _ in traffic.click_records() if b"none-" in key)
    shown = Counter(place for place, _, _ in traffic.impression_records())
    assert set(places) == set(unmatched) == set(shown) == set(range(4))
    assert max(shown.values()) - min(shown.values()) < 100


def test_one_event_in_fifty_comes_again_behind_the_first_and_in_another_partition():
    made = list(with_repeats(24_000, 4))
    assert len(made) == 24_000 + repeats(24_000)
    first = {}
    distances = []
    for number, (partition, key, value) in enumerate(made):
        if key in first:
            at, place, bytes_ = first[key]
            assert (place != partition, bytes_) == (True, value)
            distances.append(number - at)
        first.setdefault(key, (number, partition, value))
    assert len(distances) == repeats(24_000)
    assert len(first) == 24_000
    assert median(distances) > REPEAT_BEHIND


def test_impressions_in_the_window_are_those_that_are_kept():
    assert TIMES.kept(Traffic(120_000, 4)) == 62_000
    month = Times(timedelta(days=30), timedelta(minutes=2))
    assert month.kept(MONTH) == MONTH.count


def test_growth_compares_the_last_batches_with_the_first_and_leaves_out_small_ones():
    flat = [(number * 2.0, number * 100) for number in range(1, 11)]
    assert growth(flat) == 1
    assert growth([*flat, (21.0, 1001)]) == 1
    slower = [(0.0, 0), (1.0, 100), (2.0, 200), (3.0, 300), (4.0, 400), (7.0, 500)]
    assert growth(slower) == 3


def test_growth_leaves_out_commits_that_were_told_while_the_query_started():
    late = [(5.0, 100), (5.1, 200), *((5.1 + number, 200 + 100 * number) for number in (1, 2, 3))]
    assert growth(late) == pytest.approx(1)
    assert growth([(5.0, 100), (7.0, 200)]) == 1


def figures_of(cpu):
    run = Run(1_000_000, 10.0, Usage(cpu, 900.0, 0.0), 0.5)
    return Measurement(run).figures()


def test_the_ledger_costs_what_its_run_took_above_that_without_it_in_the_same_round():
    part = Ledger(1_000)
    runs = {
        (OURS, 2): [figures_of(4.2), figures_of(4.04)],
        (OURS + WITHOUT, 2): [figures_of(4.0), figures_of(4.0)],
    }
    rows = {(row.system, row.metric): row for row in part.rows(Findings(runs))}
    overhead = rows[OURS, OVERHEAD]
    assert (overhead.low, overhead.median, overhead.high) == (1, 3, 5)
    assert (OURS + WITHOUT, OVERHEAD) not in rows


def test_each_system_of_the_ledger_has_one_without_it():
    names = list(Ledger(1_000).systems)
    assert names == [OURS, OURS + WITHOUT, f"{OURS}-spark-step", f"{OURS}-spark-step{WITHOUT}"]


def test_the_months_rate_is_a_share_of_the_hours():
    month, hour = {"messages_per_second": 75.0}, {"messages_per_second": 100.0}
    assert with_rates({(OURS, 2): [month], (HOUR, 2): [hour]})[OURS, 2] == [month | {RATE: 75}]
    assert with_rates({(OURS, 2): [month]}) == {(OURS, 2): [month]}


def test_stretches_of_a_run_add_up_and_memory_is_the_largest():
    stretches = [Run(100, 2.0, Usage(1.0, 800.0, 10.0), 0.5), Run(50, 1.0, Usage(2.0, 900.0, 5), 1)]
    whole = Run.of_stretches(stretches)
    assert whole == Run(150, 3.0, Usage(3.0, 900.0, 10.0), 1.5)


def test_other_figures_of_a_run_are_beside_those_by_message():
    run = Run(500_000, 10.0, Usage(4.0, 900.0, 0.0), 0.5)
    measured = Measurement(run, {"rows": 7})
    assert measured.figures()["cpu_us_per_message"] == 8
    assert measured.figures()["rows"] == 7
    assert "rows 7" in str(measured)


def test_expected_counts_are_those_of_a_recount():
    made = [json.loads(event) for event in events(3_000)]
    groups = {(one["event_time"] // 15_000, one["campaign"], one["category"]) for one in made}
    positions = sum(one["position"] for one in made)
    expected = {"groups": len(groups), "counted_events": 3_000, "positions": positions}
    assert stats.expected_counts(3_000) == expected


@pytest.fixture
def setup(tmp_path):
    return Setup(
        bootstrap="127.0.0.1:9092",
        topic="impressions",
        messages=100,
        partitions=4,
        threads=2,
        batch_records=20,
        heap_mb=64,
        java={},
        connector=(),
        logs=tmp_path,
    )


def test_flinks_statements_name_topics_times_and_outputs(setup, tmp_path):
    out = tmp_path / "flink-sql-round-1"
    joined = flink_flow.join_statements(setup, out, traffic=MONTH, times=TIMES)
    assert "'topic' = 'month-clicks'" in joined
    assert "'topic' = 'month-impressions'" in joined
    assert "INTERVAL '60' MINUTE AND c.seen + INTERVAL '2' MINUTE" in joined
    first = flink_flow.deduplication_statements(setup, out)
    assert out.as_uri() in first
    url = "postgresql://headrace@127.0.0.1:5432/postgres"
    every = timedelta(seconds=15)
    counted = flink_flow.stats_statements(setup, out, url=url, every=every)
    assert "'table-name' = 'flink_sql_round_1'" in counted
    assert "MOD(event_time, 15000)" in counted
    # All fields of the events are read, as by the others.
    assert all(name in joined + first for name in event_schema(Impression).names)


def test_flink_forgets_after_the_horizon():
    assert flink_flow.kept_for(timedelta(minutes=10)) == {"table.exec.state.ttl": "10 min"}


CLICKS_MS = {"a": 1_000.0, "b": 2_000.0, "c": 3_000.0}


@pytest.mark.parametrize(
    "ids", [["a", "b"], ["a", "b", "c", "c"], ["a", "b", "d"]], ids=["lost", "twice", "unknown"]
)
def test_a_click_without_a_row_or_with_two_fails(ids):
    with pytest.raises(OutputWrongError, match="3 clicks gave"):
        join_latency.check([(name, 5_000.0) for name in ids], CLICKS_MS)


def test_only_clicks_after_the_beginning_count():
    rows = [("a", 1_500.0), ("b", 2_400.0), ("c", 3_700.0)]
    join_latency.check(rows, CLICKS_MS)
    assert join_latency.waits(rows, CLICKS_MS, 2_000.0) == [400, 700]
    with pytest.raises(OutputWrongError, match="no click"):
        join_latency.waits(rows, CLICKS_MS, 4_000.0)


def test_quantiles_are_values_that_occurred():
    ordered = [float(number) for number in range(1, 201)]
    assert [join_latency.quantile(ordered, share) for share in (0.5, 0.99, 1)] == [100, 198, 200]
    assert join_latency.quantile([7.0], 0.99) == 7


@pytest.mark.parametrize("benchmark", PARTS)
def test_the_page_has_a_place_for_each_table(benchmark):
    text = PAGE.read_text()
    assert f"<!-- {benchmark}: begin -->" in text
    assert f"<!-- {benchmark}: end -->" in text


@pytest.mark.parametrize("name", PARTS)
def test_each_system_tells_its_guarantee_and_headrace_is_one(name):
    systems = PARTS[name](1_000).systems
    assert OURS in systems
    first_words = {system.guarantee.partition(" once")[0] for system in systems.values()}
    assert first_words <= {"exactly", "at least"}


def test_a_part_that_there_is_not_is_named(capsys):
    with pytest.raises(SystemExit):
        main(["joins"])
    assert "there is no part joins; parts: join," in capsys.readouterr().err
