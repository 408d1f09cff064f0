"""Topics of several sites merged into one that is sorted by time."""
