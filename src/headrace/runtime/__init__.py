"""Java, jars, and embedded servers as processes."""
