"""An instance as a member of consumer groups: what it reads, restores, pauses and needs."""
