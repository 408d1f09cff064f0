"""A topic as a table: the newest record of each key."""
