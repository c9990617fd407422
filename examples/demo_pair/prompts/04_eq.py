def __eq__(self, other):
    """Compare two points."""
    if not isinstance(other,