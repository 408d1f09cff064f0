"""A log file whose errors do not reach the code that logs."""

from __future__ import annotations

import logging
from logging.handlers import WatchedFileHandler


class LogFile(WatchedFileHandler):
    """Appends lines, and reopens the file after a rotation; errors go to standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a line. The library handles errors of writing, and raises those of reopening."""
        try:
            super().emit(record)
        except OSError:
            self.handleError(record)
