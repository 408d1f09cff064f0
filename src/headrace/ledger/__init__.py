"""What every ledger is made of: sums of events by hop and fate, and windows that must balance."""
