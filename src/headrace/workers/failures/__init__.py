"""What becomes of a record that failed, and what is logged of it."""
