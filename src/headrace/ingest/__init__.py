"""HTTP in, Kafka out: nothing acknowledged that can be lost."""
