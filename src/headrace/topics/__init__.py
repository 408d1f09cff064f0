"""Topics: what must hold for them, their schemas, and views of their records."""
