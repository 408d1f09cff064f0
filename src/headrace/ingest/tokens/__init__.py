"""Access tokens: who may send what, in a compacted topic and in a file on each host."""
