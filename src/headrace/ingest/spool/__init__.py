"""Where events wait on disk while Kafka is unreachable, and what replays them."""
