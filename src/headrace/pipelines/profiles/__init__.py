"""Profiles of users, as pipelines write them, for commands and programs."""
