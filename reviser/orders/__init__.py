"""Orders, trajectories and what is known about them: no torch here.

rng.py         the random stream that Python and kernels share
record.py      Draft, Trajectory and the trajectory file      history.py  the actions that write a draft
restore.py     obfuscation and its inverse
policies.py    RandomWalk, Runs, LeftToRight, Diff, Mixture, and what every order offers
sentences.py   Sentences, Outline and Ending: whole sentences out of order
registry.py    orders by name, and how to add one
align.py       the shortest edit script between two texts
kernels.py     numba versions of the orders      replay.py  numba version of the executor
draw.py        orders through the kernels        draw_speed.py  how fast that is
statistics.py  the paper's table of a trajectory's behaviour
"""
