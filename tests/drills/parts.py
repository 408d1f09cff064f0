"""The parts of the short drills that CI runs in turns."""

from pathlib import Path

TESTS = Path(__file__).parents[1]
PARTS = (
    (
        "acceptance/test_demo.py",
        "acceptance/test_broker_killed.py",
        "acceptance/test_million_records.py",
        "acceptance/test_standby.py",
        "integration/test_bundled_java.py",
    ),
    (
        "acceptance/test_demo_sites.py",
        "acceptance/test_large_table.py",
        "acceptance/test_join_histories.py",
        "docs/test_first_project.py",
        "docs/test_postgres.py",
        "docs/test_queries.py",
        "integration/test_extras.py",
        "integration/test_fidelity.py",
    ),
    (
        "acceptance/test_demo_telemetry.py",
        "acceptance/test_lake_s3_killed.py",
        "integration/test_embedded_kafka.py",
        "integration/test_ingest.py",
        "integration/test_ingest_queries.py",
        "integration/test_opensearch.py",
        "integration/test_profiles_cassandra.py",
        "acceptance/test_kafka_sink_killed.py",
    ),
    (
        "acceptance/test_error_tracking.py",
        "acceptance/test_driver_killed.py",
        "acceptance/test_pipelines_killed.py",
        "acceptance/test_worker_drills.py",
        "integration/test_embedded_hdfs.py",
        "unit/pipelines/ledger/test_histories.py",
    ),
    (
        "acceptance/test_demo.py",
        "acceptance/test_ingest_drills.py",
        "acceptance/test_ingest_costly.py",
        "integration/test_cut_log.py",
        "unit/queries/test_against_duckdb.py",
    ),
    (
        "acceptance/test_demo_sinks.py",
        "acceptance/test_demo_sites.py",
        "acceptance/test_bigquery_killed.py",
        "acceptance/test_drill_command.py",
        "acceptance/test_sites_killed.py",
    ),
    (
        "acceptance/test_demo_telemetry.py",
        "acceptance/test_bench_flow.py",
        "acceptance/test_queries_killed.py",
        "acceptance/test_spark_cluster.py",
        "docs/test_to_a_cluster.py",
        "unit/queries/emit/test_against_arrow.py",
    ),
    (
        "acceptance/test_error_tracking.py",
        "acceptance/test_leaders_failing.py",
        "acceptance/test_unclean_election.py",
        "acceptance/test_iceberg_killed.py",
        "acceptance/test_merger_killed.py",
        "acceptance/test_offline_files_killed.py",
        "acceptance/test_opensearch_killed.py",
        "integration/test_mirror.py",
    ),
)


def parts_of(file: Path) -> set[int]:
    """Returns the numbers of the parts, from 1, that have a file of drills."""
    name = file.relative_to(TESTS).as_posix()
    return {number for number, part in enumerate(PARTS, 1) if name in part}
