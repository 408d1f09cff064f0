"""JSON texts to values, and why a text is none."""
