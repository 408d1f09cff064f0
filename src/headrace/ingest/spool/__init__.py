"""Where events wait on disk while Kafka is away, and who replays them."""

from headrace.ingest.spool.loader import Loader, LoadReport, Send
from headrace.ingest.spool.record import SpoolRecord
from headrace.ingest.spool.spool import Spool, SpoolLimits, SpoolStats

__all__ = ["LoadReport", "Loader", "Send", "Spool", "SpoolLimits", "SpoolRecord", "SpoolStats"]
