"""Rows on their way into a table: staged, inserted, and isolated where the table rejects them."""
