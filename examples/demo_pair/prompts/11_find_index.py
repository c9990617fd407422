def find_index(items, value, default=-1):
    """Return the index of the first item equal to value."""
