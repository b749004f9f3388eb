"""Results to tables, Markdown and pages."""
