"""How an instance is called that was given no name."""

from __future__ import annotations

import os
import socket


def process_name() -> str:
    """Returns the host and process id of this process."""
    return f"{socket.gethostname()}-{os.getpid()}"
