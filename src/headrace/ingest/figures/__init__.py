"""What the service counts, over all workers of a host."""
