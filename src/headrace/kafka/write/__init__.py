"""Writes records, with and without transactions."""
