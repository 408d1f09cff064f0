"""How instances are doing: figures, lag, and where they are shown."""
