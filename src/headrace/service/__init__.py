"""How anything runs and reports that lives long: pipelines, mirrors, workers, standing queries."""
