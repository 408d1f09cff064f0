"""How anything that lives long reports, and restarts; all but pipelines also run by it."""
