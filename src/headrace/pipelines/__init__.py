"""From topics to sinks on Spark."""
