"""What every query of Spark needs, whichever capability runs it."""
