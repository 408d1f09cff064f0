"""What can't be declared of a table of BigQuery, and what its settings must be."""

import subprocess
import sys
from datetime import timedelta

import pytest

from headrace import BatchLimits, BigQuery, Lake, Pipeline, Source, Topic
from headrace.model import FieldType
from headrace.pipelines.sink_changes import pace_warnings
from headrace.settings import Secret
from headrace.sinks.api import DeclaredRows

COLUMNS = {"id": FieldType.LONG, "tags": FieldType.LIST, "at": FieldType.TIMESTAMP}


@pytest.mark.parametrize(
    ("sink", "fault"),
    [
        (BigQuery(7), "BigQuery.table is 7"),
        (BigQuery("a.b.c"), "BigQuery.table is 'a.b.c'"),
        (BigQuery("t", partition_by="year"), "BigQuery.partition_by is 'year'"),
        (BigQuery("t", partition_by=[]), "BigQuery.partition_by is []"),
        (BigQuery("t", cluster_by="id"), "BigQuery.cluster_by is 'id'"),
        (BigQuery("t", cluster_by=["id"] * 5), "BigQuery.cluster_by is"),
        (BigQuery("t", cluster_by=["tags"]), "a table can't be clustered by 'tags'"),
        (BigQuery("t", cluster_by=["other"]), "a table can't be clustered by 'other'"),
        (BigQuery("t", cluster_by=[7]), "BigQuery.cluster_by is [7]"),
        (BigQuery("t", cluster_by=[["id"]]), "BigQuery.cluster_by is [['id']]"),
    ],
)
def test_what_can_not_be_is_a_fault(sink, fault):
    [found] = sink.faults(DeclaredRows(COLUMNS, "at"))
    assert found.message.startswith(fault) or fault in found.message


def test_a_table_without_an_event_time_has_no_partitions():
    rows = DeclaredRows(COLUMNS, None)
    [fault] = BigQuery("t").faults(rows)
    assert "partition_by=None" in fault.remedy
    assert list(BigQuery("t", partition_by=None).faults(rows)) == []


@pytest.mark.parametrize("name", ["_partition", "_FILE_name", "zażółć", "a b", "9lives"])
def test_names_that_no_column_may_have_are_faults(name):
    [fault] = BigQuery("t").faults(DeclaredRows(COLUMNS | {name: FieldType.LONG}, "at"))
    assert repr(name) in fault.message


def test_names_that_differ_in_case_are_one_column():
    [fault] = BigQuery("t").faults(DeclaredRows(COLUMNS | {"Id": FieldType.LONG}, "at"))
    assert "'id' and 'Id'" in fault.message


@pytest.mark.parametrize(
    ("table", "settings", "fault"),
    [
        ("t", {}, "no dataset is set"),
        ("ads.t", {}, ""),
        ("t", {"dataset": "ads"}, ""),
        ("ads.t", {"project": "p", "data_set": "ads"}, "sinks.bigquery.data_set is no setting"),
        ("ads.t", {"endpoint": "http://h:1"}, "endpoint alone"),
        ("ads.t", {"endpoint": "h:1", "storage_endpoint": "http://h:2"}, "sinks.bigquery.endpoint"),
        ("ads.t", {"endpoint": "http://h:1", "storage_endpoint": "http://h:2"}, ""),
    ],
)
def test_settings_that_do_not_fit_are_faults(table, settings, fault):
    secrets = {name: Secret(value) for name, value in settings.items()}
    faults = [found.message for found in BigQuery(table).settings_faults(secrets)]
    assert len(faults) == bool(fault)
    assert fault in "".join(faults)


def test_two_pipelines_declare_one_layout_of_their_table():
    settings = {"dataset": Secret("ads")}
    hourly, clustered = BigQuery("t", partition_by="hour"), BigQuery("t", cluster_by=["id"])
    assert BigQuery("t").resolved_target(settings) == BigQuery("ads.t").resolved_target(settings)
    assert BigQuery("t").resolved_target(settings) != BigQuery("b.t").resolved_target(settings)
    assert list(BigQuery("t").faults_beside(BigQuery("ads.t", cluster_by=[]))) == []
    [fault] = BigQuery("t").faults_beside(hourly)
    assert fault.message == "table 't' is partitioned by 'day' here and by 'hour'"
    [fault] = clustered.faults_beside(BigQuery("ads.t"))
    assert fault.message == "table 't' is clustered by ['id'] here and by []"


@pytest.mark.parametrize("value", [7, None, [7]])
def test_what_is_no_list_of_columns_raises_nowhere_else(value):
    """It is a fault by itself, and is not compared with another pipeline's."""
    for sink, other in (
        (BigQuery("t", cluster_by=value), BigQuery("t", cluster_by=["id"])),
        (Lake("t", partition_by=value), Lake("t", partition_by=["id"])),
    ):
        assert list(sink.faults(DeclaredRows(COLUMNS, "at")))
        assert list(sink.faults_beside(other)) == []
        assert list(other.faults_beside(sink)) == []


@pytest.mark.parametrize("value", [7, ["day"]])
def test_what_is_no_unit_of_partitions_is_compared_all_the_same(value):
    [fault] = BigQuery("t", partition_by=value).faults_beside(BigQuery("t"))
    assert fault.message == f"table 't' is partitioned by {value!r} here and by 'day'"


class Click:
    id: int


@pytest.mark.parametrize(
    ("partitions", "seconds", "remedy"),
    [(4, 1, "seconds=4"), (4, 4, None), (100, 4, "seconds=48"), (100, 48, None)],
)
def test_plan_prices_streams_and_changes_of_the_record(partitions, seconds, remedy):
    source = Source(Topic("clicks", event=Click, partitions=partitions))
    limits = BatchLimits(max_wait=timedelta(seconds=seconds))
    faults = list(pace_warnings(Pipeline("p", source, BigQuery("t"), limits=limits)))
    assert len(faults) == (remedy is not None)
    assert all(remedy in fault.remedy for fault in faults)
    assert list(pace_warnings(Pipeline("p", source, Lake("t")))) == []


def test_a_declaration_imports_no_client_of_google():
    program = (
        "import sys; from headrace import BigQuery; BigQuery('t').guarantee;"
        "sys.exit('google.cloud' in sys.modules or 'grpc' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
