"""The level of a board's group: it is a feed, because nothing else keeps what was posted."""

from __future__ import annotations

from ordercast import Feed
from ordercast.errors import UsageError


def board_level(given: object = None, *, where: str = "", parent: str = "") -> Feed:
    """`given`: what the settings say, if they say it; `parent`: the node to ask first, or none.

    UsageError: the settings (`where`) say that it is something else, or the name is too long.
    """
    if given is None:
        return Feed(parent=parent)
    if not isinstance(given, Feed):
        raise UsageError(f'{where}: a board needs family = "feed"')
    # Made anew, so that it is checked.
    options = {name: getattr(given, name) for name in given.__struct_fields__}
    return Feed(**{**options, "parent": parent or given.parent})
