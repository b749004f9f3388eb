"""Judges: which of two texts is better.

pairs.py             two systems' texts for one prompt
judgments.py         what a judge said about them, and the file that keeps it
arena.py             what a judge is, and how pairs are put before one
chat.py              a chat model behind an HTTP endpoint (endpoint.py, exchange.py, redaction.py)
critic.py            a chat model on this machine
registered_judges.py functions that somebody registers by name
rankers.py           several texts for one prompt, ranked by any of these
likelihood_judge.py  the likelihood of the texts under a causal model
messages.py          what chat models and critics are shown, and how their replies are read
"""
