"""The decoder on a CPU: numba kernels for the step, the canvases and the choice of an action."""
