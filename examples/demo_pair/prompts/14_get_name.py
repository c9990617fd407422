def get_name(self):
    """Return the name of the object."""
