"""Faults in numbers: real processes are killed, starved and fed with damage, and what came of it is counted.

    trial.py     a trial, its tally, and how a command is run and judged
    world.py     small files of every format to try things on
    kills.py     SIGKILL at random moments, then the same command again
    damage.py    flipped bytes, truncations, empty files and other versions of every format
    hostile.py   pickles, bombs, deep and huge JSON, path tricks, markup and terminal escapes
    scarcity.py  full disks, read-only places, few descriptors, little memory, odd terminals and clocks
    server.py    damaged requests to `reviser serve`, and kills under load

`make torture` runs all of them, `python -m torture --help` says how to run some, docs/reliability.md has the table.
"""
