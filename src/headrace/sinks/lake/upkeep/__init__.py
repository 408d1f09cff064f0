"""Keeps tables fast to read: small files are merged, dead ones removed."""
