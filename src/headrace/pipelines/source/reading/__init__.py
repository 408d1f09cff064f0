"""Ranges of offsets, read and decoded: in the tasks."""
