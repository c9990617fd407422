def split_words(text, separator=None):
    """Split a text into words."""
    words = []
    for