"""The settings of a node, from a TOML file or from keyword arguments."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ordercast.errors import UsageError
from ordercast.protocol.families import DEFAULT
from ordercast.settings import Source, read_source
from ordercast.types import NODE_NAME, objection_to_group
from ordercast.units import SECOND, Duration, Size

Name = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=100,
        pattern=NODE_NAME,
        description="a name of letters, digits and . _ - that is not . or ..",
    ),
]
Place = Annotated[
    str,
    Meta(
        pattern=r"^\S+:\d{1,5}\Z",
        max_length=255,
        description="an address with a port, such as 127.0.0.1:7101",
    ),
]


def table_of(group: str) -> str:
    """The head of a group's table, as a settings file has it."""
    return f"[group.{group}]" if re.fullmatch(r"[\w-]+", group) else f'[group."{group}"]'


class TlsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    authority: str  # PEM files
    certificate: str
    key: str


class GroupRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Who may do what in a group. Absent: everybody of the cluster."""

    family: str = DEFAULT
    options: dict[str, Any] = {}
    members: list[Name] | None = None  # these and no others: the group is closed
    expect: Annotated[int, Meta(ge=1)] | None = None  # an open one is founded by so many nodes
    of: Annotated[int, Meta(ge=1)] | None = None  # and so many nodes, at most, expect that number
    founder: Name | None = None  # an open one is founded by this node
    may_send: list[Name] | None = None


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    name: Name
    cluster: Name = "ordercast"
    listen: Place = "127.0.0.1:0"
    advertise: Place | None = None  # where others reach this node; absent: where they see it
    data: str | None = None  # the node's folder; absent: see `data_folder`
    peers: dict[Name, Place] = {}  # who is where
    seeds: list[Place] = []  # somebody of the cluster is there
    tls: TlsSettings | None = None
    insecure: bool = False  # plain connections beyond loopback
    group: dict[str, GroupRules] = {}
    peer_limit: Size = Size(32 << 20)  # bytes on the way to one peer; then sends wait
    eject_after: Duration = Duration(30 * SECOND)  # how long a slow consumer may stand still
    trace: str | None = None  # a file to which rows are appended
    control: str | None = None  # a local socket for `ordercast members`, `monitor` and `forget`
    metrics: Place | None = None  # where Prometheus may ask, such as 127.0.0.1:9400

    def __post_init__(self) -> None:
        for name in self.group:
            if objection := objection_to_group(name):
                raise ValueError(objection)
        if self.data is not None and (not self.data or "\0" in self.data):
            raise ValueError(f"data: {self.data!r} is no folder: give its path, or leave it out")
        others = (*self.seeds, *self.peers.values(), *filter(None, [self.advertise]))
        for place in others:
            _check_place(place, 1)
        for place in filter(None, [self.listen, self.metrics]):
            _check_place(place, 0)  # 0: any port that is free


def _check_place(place: str, lowest: int) -> None:
    host, _, port = place.rpartition(":")
    if not lowest <= int(port) < 1 << 16:
        raise ValueError(f"{place!r}: {port} is no port, {lowest} to 65535 are")
    if ":" in host:
        try:
            ipaddress.IPv6Address(host.removeprefix("[").removesuffix("]"))
        except ValueError as error:
            raise ValueError(f"{place!r} is no address with a port: {error}") from error


def config_of(settings: str | Path | Config | None, more: Mapping[str, object]) -> Config:
    """What `ordercast.open` is given: a file or a `Config`, and keywords that overrule a file."""
    if isinstance(settings, Config):
        if more:
            raise UsageError("give a Config or keywords, not both")
        return settings
    if settings is None:
        return Source("ordercast.open", "", dict(more)).struct(Config, "a node")
    source = read_source(Path(settings), "a node's settings")
    merged = source._replace(document={**source.document, **more})
    return merged.struct(Config, "a node")


def data_folder(config: Config) -> Path:
    """Where a node keeps its data: wherever it is started, in the same place.

    In $ORDERCAST_DATA, or where this user's programs keep their state; each cluster and each node
    has a folder there.
    """
    if config.data is not None:
        return Path(config.data)
    place = Path(config.cluster) / config.name
    if chosen := os.environ.get("ORDERCAST_DATA"):
        return Path(chosen).absolute() / place
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    try:
        state = state if state.is_absolute() else Path.home() / ".local" / "state"
    except RuntimeError as error:
        raise UsageError(
            f"{config.name} has nowhere to keep its data, for this user has no home folder: give "
            f'data = "FOLDER", or set ORDERCAST_DATA'
        ) from error
    return state / "ordercast" / place


def former_folder(config: Config) -> Path | None:
    """Where this node may have data that it does not look at: in the working directory."""
    former = Path(".ordercast") / config.name
    return former.absolute() if config.data is None and former.is_dir() else None
