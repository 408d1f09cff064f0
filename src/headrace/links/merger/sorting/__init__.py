"""Which records a merger writes next, how far its sources are, and what is late."""
