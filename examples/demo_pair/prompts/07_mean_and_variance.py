def mean_and_variance(values):
    """Compute the mean and the variance of a sequence of numbers."""
