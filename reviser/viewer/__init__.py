"""Trajectories to look at: in the terminal (terminal.py, live.py) and as a page (replay_page.py)."""
