"""The catalog of Iceberg tables, and its settings."""
