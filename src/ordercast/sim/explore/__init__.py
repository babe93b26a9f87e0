"""Every schedule of a small group, up to a bound.

search.py       the search itself, what it reports, and replaying a schedule
setting.py      who takes part, under which rules, and the bounds of a search
model.py        states of the whole group, and what may happen next in each
members.py      states of single members, and their remembered reactions
run.py          runs that follow one fair schedule: the prelude, and settling
schedule.py     schedules as lines that a person can read, and following them
fingerprint.py  the canonical encoding by which states are recognised again
"""

from ordercast.sim.explore.search import Broken, Present, Replayed, Report, explore, replay
from ordercast.sim.explore.setting import Bounds, Setting, setting, setting_of

__all__ = [
    "Bounds",
    "Broken",
    "Present",
    "Replayed",
    "Report",
    "Setting",
    "explore",
    "replay",
    "setting",
    "setting_of",
]
