"""The data pipeline: sweeps of simulations, laws and metrics over many runs, on Spark.

java.py        which Java to run Spark with
session.py     from a URL to a session
clusters.py    a cluster or a Connect server on this machine, to try them

experiment.py  experiment files: a scenario, a grid, seeds, what is drawn
tune.py        a setting that is searched for each run
trials.py      one trial: simulate, judge, measure, write; a pure function of its row
sweep.py       trials as Spark tasks, resumed by their manifests
results.py     means over the seeds with their margins; results.parquet
outcome.py     what a sweep's folder says about itself
figures.py     results as drawings

tables.py      a lake as a DataFrame
metrics.py     the metrics of check/metrics as DataFrame functions
laws.py        the laws on a lake: a task for a run that fits one, slices for a larger one
by_value.py    laws that are defined elsewhere, on their way to tasks
columns.py     one run as numpy columns
vector*.py     the rows that matter to each law, chosen by vectors
sliced_run.py  one huge run, judged in slices: slices.py, process_history.py, walks.py

recording.py   what a recorder wrote, as Arrow batches
log_rows.py    the log of a group, as Arrow batches
log_stream.py  the same as a stream: offsets, and what tasks read between them
stream.py      `format("ordercast")`: whatever a folder holds, as a stream or a table
online.py      laws on a live stream

Nothing here runs at import time: executors import these modules.
"""
