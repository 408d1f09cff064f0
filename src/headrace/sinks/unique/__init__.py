"""Which rows are duplicates: what every sink with ``unique`` declares, and compares rows by."""
