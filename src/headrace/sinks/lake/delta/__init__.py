"""Tables of the lake in the format Delta."""
