def read_lines(path, encoding="utf-8"):
    """Return the lines of a text file without their line ends."""
