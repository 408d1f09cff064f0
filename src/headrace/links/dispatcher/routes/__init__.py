"""A route of a dispatcher: what one target gets, and by which query."""
