"""Trajectories for the eye: in the terminal (terminal.py, live.py while they are made) and as a page (html.py)."""
