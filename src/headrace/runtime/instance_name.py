"""The name of an instance that was given none."""

from __future__ import annotations

import os
import socket


def process_name() -> str:
    """Returns the host and process id of this process."""
    return f"{socket.gethostname()}-{os.getpid()}"
