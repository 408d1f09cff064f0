"""Counts for the ledger, where records are read and rows are written."""
