"""Studies: models and published algorithms that we compare with, apart from what runs live.

planner.py  which settings of gossip give which reliability
spread.py   how far one event gets, in expectation: the model under the planner
tails.py    tails of distributions, exactly
rounds.py   gossip of one event to millions of processes, every message drawn
demonstration.py      what `ordercast demo` runs
published_ring/       the ring of tickets as it was published
published_synchrony/  membership with virtual synchrony as it was published
"""
