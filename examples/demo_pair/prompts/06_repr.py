def __repr__(self):
    """Return a short description of the object for debugging."""
