"""Who prefers which text: pairs, judges and their files."""
