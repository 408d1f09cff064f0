"""The parts of the short drills that CI runs in turns."""

PARTS = (
    ("test_demo.py", "test_broker_killed.py"),
    ("test_demo_sites.py", "test_large_table.py", "test_join_histories.py"),
    ("test_demo_telemetry.py", "test_lake_s3_killed.py"),
    ("test_error_tracking.py", "test_driver_killed.py", "test_pipelines_killed.py"),
    ("test_demo.py", "test_ingest_drills.py", "test_ingest_costly.py", "test_against_duckdb.py"),
    ("test_demo_sites.py", "test_sites_killed.py", "test_worker_drills.py"),
    (
        "test_demo_telemetry.py",
        "test_queries_killed.py",
        "test_spark_cluster.py",
        "test_bench_flow.py",
        "test_against_arrow.py",
    ),
    (
        "test_error_tracking.py",
        "test_leaders_failing.py",
        "test_merger_killed.py",
        "test_offline_files_killed.py",
    ),
)


def parts_of(file: str) -> set[int]:
    """Returns the numbers of the parts, from 1, that have a file of drills."""
    return {number for number, part in enumerate(PARTS, 1) if file in part}
