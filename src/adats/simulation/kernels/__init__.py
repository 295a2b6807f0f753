"""The simulator's compiled inner loops: one task of one run a call.

Each is the loop of `plain_task` for one model, written out: the same draws in the same order,
so the same decisions. `registry` says which loop is for which problem and prior; every other module
here imports Numba. A module has its compiled functions first, then, in plain Python, what brings a
problem and a prior to the arrays that they take.
"""
