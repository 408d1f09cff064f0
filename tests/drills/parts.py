"""The parts of the short drills that CI runs in turns: each takes five minutes of two cores."""

PARTS = (
    ("test_demo.py", "test_driver_killed.py"),
    ("test_demo_sites.py", "test_join_killed.py", "test_stats_killed.py"),
    ("test_demo_telemetry.py", "test_ledger_killed.py", "test_against_duckdb.py"),
    ("test_error_tracking.py", "test_lake_s3_killed.py", "test_large_table.py"),
    ("test_postgres_killed.py", "test_ingest_drills.py", "test_ingest_costly.py"),
    ("test_sites_killed.py", "test_worker_drills.py", "test_join_histories.py"),
    ("test_queries_killed.py", "test_broker_killed.py", "test_against_arrow.py"),
    (
        "test_reprocess_killed.py",
        "test_leaders_failing.py",
        "test_mirror_killed.py",
        "test_merger_killed.py",
        "test_dispatcher_killed.py",
        "test_offline_files_killed.py",
        "test_bench_flow.py",
    ),
)


def part_of(file: str) -> int | None:
    """Returns the number of the part, from 1, that has a file of drills."""
    return next((number for number, part in enumerate(PARTS, 1) if file in part), None)
