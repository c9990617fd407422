def remove(self, item):
    """Remove an item from the list of items."""
