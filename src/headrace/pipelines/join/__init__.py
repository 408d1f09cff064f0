"""Two topics read together: each later event with the earlier one that it names."""
