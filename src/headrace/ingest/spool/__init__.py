"""Where events wait on disk while Kafka is away, and who replays them."""
