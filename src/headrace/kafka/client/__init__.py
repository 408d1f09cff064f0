"""Clients of a broker, their configuration, and what its errors mean."""
