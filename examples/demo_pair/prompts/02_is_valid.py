def is_valid(self, value):
    """Return True if the value is allowed for this field."""
