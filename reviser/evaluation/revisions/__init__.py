"""Drafts that a model has revised, and what they are compared with.

| module | what |
|---|---|
| `redrafts` | systems: the revised draft, the best of several drafts |
| `draft_scores` | evalPPL beside the drafts', whom an evaluator prefers |
| `known_spans` | texts with one span by the model: does it find the span, write it better, leave the rest alone? |
"""
