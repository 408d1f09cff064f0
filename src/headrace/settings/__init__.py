"""Deployment: headrace.toml, the environment, secrets by reference."""
