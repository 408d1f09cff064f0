"""Measurements that were never made."""

from headrace.operations.measuring.result import (
    Machine,
    MeasuredDeclaration,
    Round,
    SampleUsed,
    UserTime,
)


def measured(kind="worker", **changes):
    """A measurement: 2,000 records/s, 100 s of CPU for a million, 500 bytes a record."""
    members = {
        "kind": kind,
        "name": "enrich",
        "command": "headrace measure enrich",
        "measured_at": "2026-11-30T19:00:00Z",
        "versions": {"headrace": "1.0", "python": "3.11.9"},
        "machine": Machine(2, "A Processor", 8 * 1024**3, "Linux"),
        "sample": SampleUsed("topic clicks", 2000, 500.0),
        "rounds": (
            Round(1.0, 1900, 0, 0.2, 1900, 95_000),
            Round(1.0, 2000, 0, 0.2, 2000, 100_000),
            Round(2.0, 4100, 41, 0.41, 4059, 202_950),
        ),
        "peak_memory_bytes": 100 * 1024**2,
        "peak_worker_bytes": 0,
        "user": UserTime(0.0005, 0.6),
        "not_measured": ("sends: they go to one topic",),
    }
    return MeasuredDeclaration(**(members | changes))
