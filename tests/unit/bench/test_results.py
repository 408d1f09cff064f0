"""Rows of results, merged by benchmark, system and metric."""

import json

from bench.report import markdown, write_page
from bench.results import merge, read, row, without, write

CONTEXT = {
    "machine": {"processor": "P", "cores": 2, "memory_gib": 24, "kernel": "6"},
    "versions": {"pyspark": "4.2.0"},
    "settings": {"work": "2,000,000 events", "rounds": 3},
}


def speed(system, *rounds):
    return row("writer", system, "messages_per_second", "messages/s", rounds)


def test_a_row_holds_the_median_and_the_range_of_its_rounds():
    one = speed("a", 300_000.4, 100.0, 200.0)
    assert (one.median, one.low, one.high) == (200.0, 100.0, 300_000.0)


def test_small_figures_keep_four_digits():
    assert row("writer", "a", "cpu_us_per_message", "us", [4.23456]).median == 4.235


def test_a_later_run_replaces_its_own_rows_and_leaves_the_others():
    first = merge({}, "writer", CONTEXT, [speed("a", 1.0), speed("b", 2.0)])
    other = row("ingest", "a", "messages_per_second", "messages/s", [7.0])
    second = merge(first, "ingest", CONTEXT, [other])
    third = merge(second, "writer", CONTEXT, [speed("a", 9.0)])
    found = {(one["benchmark"], one["system"]): one["median"] for one in third["rows"]}
    assert found == {("writer", "a"): 9.0, ("writer", "b"): 2.0, ("ingest", "a"): 7.0}
    assert set(third["settings"]) == {"writer", "ingest"}


def test_each_benchmark_keeps_the_machine_and_versions_that_it_was_measured_with():
    first = merge({}, "writer", CONTEXT, [speed("a", 1.0)])
    elsewhere = CONTEXT | {"machine": CONTEXT["machine"] | {"processor": "Q"}}
    other = row("ingest", "a", "messages_per_second", "messages/s", [7.0])
    both = merge(first, "ingest", elsewhere, [other])
    assert "on 2 cores (P)" in markdown([speed("a", 1.0)], both, "writer")
    assert "on 2 cores (Q)" in markdown([other], both, "ingest")


def test_what_was_written_reads_back(tmp_path):
    path = tmp_path / "results.json"
    assert read(path) == {}
    document = merge({}, "writer", CONTEXT, [speed("a", 1.0)])
    write(document, path)
    assert read(path) == document == json.loads(path.read_text())


def test_the_page_gets_the_table_between_its_markers_and_keeps_the_rest(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- writer: begin -->\nold\n<!-- writer: end -->\nafter\n")
    document = merge({}, "writer", CONTEXT, [speed("a", 300_000.0, 310_000.0, 320_000.0)])
    write_page(document, page)
    text = page.read_text()
    assert text.startswith("before\n<!-- writer: begin -->\n| metric | a |")
    assert "| `messages_per_second` (messages/s) | 310,000 (300,000 to 320,000) |" in text
    assert "old" not in text
    assert text.endswith("<!-- writer: end -->\nafter\n")


def test_a_system_without_a_figure_has_an_empty_cell():
    files = row("writer", "b", "files", "files", [16.0])
    document = merge({}, "writer", CONTEXT, [])
    assert "| `files` (files) |  | 16 |" in markdown([speed("a", 1.0), files], document, "writer")


def threaded(threads, rounds, metric="messages_per_second"):
    return row("writer-peers", "a", metric, "messages/s", rounds, threads=threads)


def test_systems_measured_with_several_threads_have_a_line_each():
    rows = [threaded(1, [100.0, 200.0, 300.0]), threaded(2, [400.0]), threaded(2, [3.0], "files")]
    settings = CONTEXT["settings"] | {
        "guarantees": {"a": "at least once"},
        "without_figures": {"b": "it needs a jar"},
    }
    document = merge({}, "writer-peers", CONTEXT | {"settings": settings}, rows)
    lines = markdown(rows, document, "writer-peers").splitlines()
    assert lines[0].startswith("| system | threads | `messages_per_second` (messages/s) |")
    assert lines[2:4] == [
        "| a | 1 | 200 (100 to 300) |  | at least once |",
        "| a | 2 | 400 | 3 | at least once |",
    ]
    assert "b: it needs a jar" in lines


def test_only_what_has_threads_says_so_in_the_document():
    document = merge({}, "writer-peers", CONTEXT, [threaded(2, [1.0]), speed("a", 1.0)])
    assert [one.get("threads", "none") for one in document["rows"]] == [2, "none"]


def test_systems_measured_with_several_lanes_have_a_line_each():
    rows = [
        row("worker-peers-call", "a", "of_ideal", "%", [99.5], lanes=lanes) for lanes in (4, 64)
    ]
    document = merge({}, "worker-peers-call", CONTEXT, rows)
    lines = markdown(rows, document, "worker-peers-call").splitlines()
    assert lines[0] == "| system | lanes | `of_ideal` (%) |"
    assert lines[2:4] == ["| a | 4 | 99.50 |", "| a | 64 | 99.50 |"]


def test_what_failed_now_has_no_figures_of_before():
    document = merge({}, "writer-peers", CONTEXT, [threaded(1, [1.0]), threaded(2, [2.0])])
    left = without(document, "writer-peers", [("a", 2)])
    assert [one["threads"] for one in left["rows"]] == [1]
    assert without(document, "writer", [("a", 2)]) == document
    assert without({}, "writer", [("a", 2)]) == {}
