"""How large topics and their cluster must be, computed and measured."""
