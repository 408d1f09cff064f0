"""A log file that what is logged never fails by."""

from __future__ import annotations

import logging
from logging.handlers import WatchedFileHandler


class LogFile(WatchedFileHandler):
    """Appends lines, after a rotation to a new file; a line that fails goes to standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a line. The library would raise what fails when it opens the file anew."""
        try:
            super().emit(record)
        except OSError:
            self.handleError(record)
