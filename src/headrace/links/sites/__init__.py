"""Whether the topics of sites fit each other."""
