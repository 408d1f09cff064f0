"""Mirrors: topics of one site, copied to another one."""
