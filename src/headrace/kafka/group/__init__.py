"""Consumer groups: members, commits, and start offsets."""
