"""What a pipeline starts from, and the checks before it does."""
