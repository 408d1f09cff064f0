"""Topics, schemas and brokers: compared, changed and measured."""
