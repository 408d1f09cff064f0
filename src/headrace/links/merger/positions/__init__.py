"""Where the sources of a merger continue, and what they have lost."""
