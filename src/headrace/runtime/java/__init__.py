"""Java, and the jars that it runs."""
