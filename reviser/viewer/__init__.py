"""Trajectories for the eye: terminal.py."""
