"""Metrics: name, unit, meaning, what to do when one moves."""
