"""What commands have in common: parsers and their options, and what is printed or kept of a result."""
