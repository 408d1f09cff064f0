"""The user's steps."""
