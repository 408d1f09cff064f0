"""Whether all events have arrived: the books of all capabilities, compared."""
