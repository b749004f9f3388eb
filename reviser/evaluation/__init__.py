"""Metrics that compare systems: what they wrote, how probable text is to them, what it costs."""
