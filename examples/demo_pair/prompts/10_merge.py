def merge(self, other):
    """Merge the entries of another mapping into this one."""
