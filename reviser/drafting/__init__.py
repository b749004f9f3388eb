"""A model's own writing as something to learn from: spans of real text that it has filled, beside the originals.

| module | what |
|---|---|
| `draft_spans` | which stretch of a document, and which spans of it are written anew |
| `draft_pairs` | a model fills the spans, and pairs of texts are kept |
"""
