def validate(self, data):
    """Validate the data and raise ValueError if it is not valid."""
