def chunks(sequence, size):
    """Yield successive chunks of the given size from a sequence."""
