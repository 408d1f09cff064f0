"""Events in Avro."""
