"""JSON Schemas of event classes."""
