"""Files on this machine: durable, locked, cached."""
