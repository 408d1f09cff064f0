"""Events: from the text of a body to Kafka or the spool."""
