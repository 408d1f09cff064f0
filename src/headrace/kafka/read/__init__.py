"""Reads ranges of partitions, and decides whether a reader may continue."""
