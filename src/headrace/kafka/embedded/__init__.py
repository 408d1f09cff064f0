"""A Kafka cluster on this machine."""
