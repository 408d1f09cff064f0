"""Results of standing queries: read, and explained."""
