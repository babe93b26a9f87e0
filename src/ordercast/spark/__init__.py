"""The data pipeline: sweeps of simulations, laws and metrics over many runs, on Spark.

java.py        which Java to run Spark with
session.py     from a URL to a session
experiment.py  experiment files: a scenario, a grid, seeds
cells.py       one cell: simulate, judge, measure, write; a pure function of its row
sweep.py       cells as Spark tasks, resumed by their manifests
laws.py        the laws on a lake, a task a run

Nothing here runs at import time: executors import these modules.
"""
