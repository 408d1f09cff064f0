"""An instance as a member of consumer groups: what it reads, pauses and needs."""
