"""The decoder on a GPU: Triton kernels for the step, the canvases and the choice of an action."""
