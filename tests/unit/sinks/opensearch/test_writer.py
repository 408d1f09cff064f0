"""The tasks' half of an open index: what it asks before its first rows."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from tests.unit.sinks.opensearch.stand_in import FOREIGN, cluster

from headrace.errors import SinkError, SinkUnavailableError
from headrace.sinks.opensearch.client import ClusterNodes
from headrace.sinks.opensearch.documents import DocumentSpec
from headrace.sinks.opensearch.index_name import IndexBy
from headrace.sinks.opensearch.positions import OpenSearchPositions
from headrace.sinks.opensearch.writer import DocumentWriters, OpenSearchDriver

SCHEMA = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
ONE = DocumentSpec("clicks", None, None, ("id",), None)
BY_DAY = DocumentSpec("clicks", IndexBy.DAY, "at", ("id",), None)
STREAM = DocumentSpec("clicks", None, "at", ("id",), None, is_data_stream=True)
PATTERNS = IndexBy.DAY.patterns("clicks")
OWN = {"name": "headrace-clicks", "index_template": {"index_patterns": PATTERNS, "priority": 206}}
TEMPLATE = {"index_templates": [OWN]}
INDEX = {"settings": {"index": {"uuid": "a"}}}
ABSENT = (404, {"error": {"type": "resource_not_found_exception", "reason": "none"}})
DENIED = {"error": {"type": "some_exception", "reason": "not now"}}


def rows_of(*days):
    rows = [{"id": day, "at": datetime(2026, 11, day, tzinfo=UTC)} for day in days]
    return pa.Table.from_pylist(rows, SCHEMA)


def writers_of(nodes, spec, max_wait_seconds=0.0):
    return DocumentWriters(nodes, spec, SCHEMA, max_wait_seconds)


def answering(index, template=(200, {"index_templates": []})):
    """A cluster that takes each bulk, with an answer about indices and one about the template."""

    def answer(_, path, __):
        if path.startswith("/_bulk"):
            return 200, {"errors": False, "items": []}
        return template if path.startswith("/_index_template") else index

    return cluster(answer)


def bulks(requests):
    return [body for _, path, body in requests if path.startswith("/_bulk")]


def test_a_task_without_rows_reads_no_certificates():
    rows = pa.table({"id": [1]})
    nodes = ClusterNodes(("https://127.0.0.1:1",), ca_file="/nowhere")
    writers = DocumentWriters(nodes, ONE, rows.schema)
    assert writers("a" * 32).close() == []
    writers("a" * 32).abort()
    with pytest.raises(SinkError, match="ca_file /nowhere"):
        writers("a" * 32).write(rows)


@pytest.mark.parametrize("spec", [ONE, BY_DAY])
@pytest.mark.parametrize("status", [401, 403, 408, 429, 503])
def test_no_row_is_sent_while_it_is_not_known_whether_its_index_exists(spec, status):
    """The server would guess the fields of an index whose template is missing, too."""
    with answering((status, DENIED)) as (nodes, requests):
        writer = writers_of(nodes, spec)("a" * 32)
        for _ in range(2):
            with pytest.raises(SinkUnavailableError, match=f"{status} "):
                writer.write(rows_of(7, 8))
        assert bulks(requests) == []
        writer.abort()


@pytest.mark.parametrize("status", [401, 403, 408, 429, 503])
def test_no_row_is_sent_while_it_is_not_known_whether_a_template_exists(status):
    with answering(ABSENT, (status, DENIED)) as (nodes, requests):
        writer = writers_of(nodes, BY_DAY)("a" * 32)
        with pytest.raises(SinkUnavailableError, match=f"{status} some_exception: not now"):
            writer.write(rows_of(7))
        assert bulks(requests) == []
        writer.abort()


@pytest.mark.parametrize("spec", [ONE, BY_DAY, STREAM])
@pytest.mark.parametrize("answer", FOREIGN)
def test_what_a_proxy_answers_says_nothing_about_an_index(spec, answer):
    for answers in ((answer,), (ABSENT, answer)):
        with answering(*answers) as (nodes, requests):
            writer = writers_of(nodes, spec)("a" * 32)
            with pytest.raises(SinkUnavailableError, match="this is no answer of a cluster"):
                writer.write(rows_of(7))
            assert bulks(requests) == []
            writer.abort()


def test_a_cluster_that_is_busy_is_asked_again_before_the_task_fails():
    def answer(_, path, asked):
        if path.startswith("/_bulk"):
            return 200, {"errors": False, "items": []}
        return (429, DENIED) if asked < 2 else (200, {"clicks": INDEX})

    with cluster(answer) as (nodes, requests):
        writer = writers_of(nodes, ONE, max_wait_seconds=60.0)("a" * 32)
        assert writer.write(rows_of(7)) == []
        assert len(bulks(requests)) == 1
        writer.abort()


def test_all_indices_of_the_rows_are_asked_for_at_once_and_once():
    existing = {"clicks-2026.11.07": INDEX, "clicks-2026.11.08": INDEX}
    with answering((200, existing), (200, TEMPLATE)) as (nodes, requests):
        writer = writers_of(nodes, BY_DAY)("a" * 32)
        for _ in range(2):
            writer.write(rows_of(7, 8, 9, 10))
        writer.write(rows_of(11))
        asked = [path for _, path, _ in requests if not path.startswith("/_bulk")]
        assert asked == ["/clicks-*/_settings/index.uuid", "/_index_template"] * 2
        writer.abort()


def test_an_index_that_exists_needs_no_template():
    existing = {"clicks-2026.11.07": INDEX}
    with answering((200, existing)) as (nodes, requests):
        writer = writers_of(nodes, BY_DAY)("a" * 32)
        assert writer.write(rows_of(7)) == []
        reason = "index clicks-2026.11.08'.: index template headrace-clicks was deleted"
        with pytest.raises(SinkError, match=reason):
            writer.write(rows_of(7, 8))
        assert len(bulks(requests)) == 1
        writer.abort()


def test_an_index_that_is_deleted_while_a_pipeline_starts_ends_the_start():
    with answering(ABSENT) as (nodes, _):
        positions = OpenSearchPositions(nodes, "clicks", "p")
        with pytest.raises(SinkError, match="deleted while the pipeline started"):
            OpenSearchDriver(positions, writers_of(nodes, ONE))
        OpenSearchDriver(positions, writers_of(nodes, BY_DAY)).close(0.0)


def test_no_row_is_sent_where_another_template_counts():
    theirs = {"index_patterns": ["clicks*"], "priority": 500}
    templates = {"index_templates": [OWN, {"name": "theirs", "index_template": theirs}]}
    with answering(ABSENT, (200, templates)) as (nodes, requests):
        writer = writers_of(nodes, BY_DAY)("a" * 32)
        reason = (
            "index template theirs counts for it, and not headrace-clicks, whose priority is 206"
        )
        with pytest.raises(SinkError, match=reason):
            writer.write(rows_of(7))
        assert bulks(requests) == []
        writer.abort()
