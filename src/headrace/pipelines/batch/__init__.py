"""The end of a batch."""
