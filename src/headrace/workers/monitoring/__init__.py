"""The progress of instances: figures, lag, and where they are shown."""
