def add(self, name, callback, *args, **kwargs):
    """Register a callback under a name."""
