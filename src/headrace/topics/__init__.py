"""Topics: what must hold for them, their schemas, and their records as people look at them."""
