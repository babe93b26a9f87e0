"""What holds for every test: no property has a deadline, for that would read the clock."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("ordercast", deadline=None)
settings.load_profile("ordercast")
