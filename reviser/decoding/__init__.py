"""From a seed and a model to a trajectory: reference.py is the plain decoder."""
