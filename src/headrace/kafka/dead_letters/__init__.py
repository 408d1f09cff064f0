"""Dead letters: written, limited, read and replayed."""
