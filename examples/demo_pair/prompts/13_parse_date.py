def parse_date(text, format=None):
    """Parse a date from a string."""
