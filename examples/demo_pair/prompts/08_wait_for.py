def wait_for(self, condition, timeout=None):
    """Wait until the condition is true or the timeout has passed."""
