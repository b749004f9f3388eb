"""How fast the parts are on this machine: drawing trajectories, training steps, decoding."""
