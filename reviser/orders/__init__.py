"""Orders, trajectories and what is known about them: no torch here.

rng.py         the random stream that Python and kernels share
record.py      Draft, Trajectory and the trajectory file
restore.py     obfuscation and its inverse
orders.py      RandomWalk, Runs, LeftToRight, Diff, Mixture     scramble.py  Scramble
align.py       the shortest edit script between two texts
kernels.py     numba twins of the orders      replay.py  numba twin of the executor
draw.py        orders through the kernels
statistics.py  the paper's table of a trajectory's behaviour
"""
