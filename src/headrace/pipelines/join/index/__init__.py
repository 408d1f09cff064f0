"""Earlier events of a join, by key: on disk, and durable in the checkpoint."""
