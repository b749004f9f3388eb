"""What a model that edits is used for: its actions as edits of a text, of any length and format, and of files."""
