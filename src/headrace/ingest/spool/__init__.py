"""Where events wait on disk while Kafka is away, and who replays them."""

from headrace.ingest.spool.group import GroupCommit
from headrace.ingest.spool.loader import Loader, LoadReport, Send, SendResult
from headrace.ingest.spool.record import SpoolRecord
from headrace.ingest.spool.spool import Spool, SpoolLimits, SpoolStats

__all__ = [
    "GroupCommit",
    "LoadReport",
    "Loader",
    "Send",
    "SendResult",
    "Spool",
    "SpoolLimits",
    "SpoolRecord",
    "SpoolStats",
]
