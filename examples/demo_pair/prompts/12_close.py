def close(self):
    """Close the connection and release its resources."""
