"""Learning on a model's own states: what it writes itself is judged or corrected, and it learns from that."""
