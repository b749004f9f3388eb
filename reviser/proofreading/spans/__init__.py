"""What of a text is no prose, by format."""
