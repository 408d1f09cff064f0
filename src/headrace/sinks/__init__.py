"""One file a sink, named as its config word."""
