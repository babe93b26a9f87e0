"""A network of the kernel's for a live scenario: each member in a namespace of its own.

The namespaces hang on one bridge, which stands in a further namespace, so that nothing of it can be
seen in this machine's own network and no firewall rule of it applies. A path is cut at its end: a
routing rule of the receiver's namespace sends what comes from an address into a black hole. So the
sender learns nothing, connections stay as they are, and each direction is cut by itself.

It takes Linux, root and `ip`, and nothing else. Names carry our process id: what a run left that
was killed before it could clean up, the next one takes away.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from ordercast.errors import OrdercastError

PREFIX = "ordercast-"
HUB = "hub"
SUBNET = "10.213.0"  # only the members see it: each run has its own
MOST_MEMBERS = 250
COMMAND_SECONDS = 20.0
CUT, LOCAL = 10, 100
"""The order of rules: first what is cut, then what is delivered here."""


class Unavailable(OrdercastError):
    """Why this machine gives us no namespaces."""


class Namespaces:
    def __init__(self, names: tuple[str, ...]) -> None:
        self._numbers = {name: number for number, name in enumerate(names, 1)}
        self._cut: frozenset[tuple[str, str]] = frozenset()
        self._ours = f"{PREFIX}{os.getpid()}-"

    def open(self) -> None:
        """Makes all of it, or nothing: Unavailable says why."""
        if sys.platform != "linux":
            raise Unavailable("network namespaces are Linux's")
        if os.geteuid() != 0:
            raise Unavailable("network namespaces are root's")
        if shutil.which("ip") is None:
            raise Unavailable("there is no `ip` command")
        if len(self._numbers) > MOST_MEMBERS:
            raise Unavailable(f"a namespace network has {MOST_MEMBERS} members at most")
        try:
            _sweep()
            self._build()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Takes everything away. What is in a namespace goes with it."""
        for name in (*self._numbers, HUB):
            if Path("/run/netns", self._space(name)).exists():
                with suppress(Unavailable):
                    _ip(["netns", "del", self._space(name)])

    def command(self, name: str) -> list[str]:
        """What goes before a command, so that it runs in the member's namespace."""
        return ["ip", "netns", "exec", self._space(name)]

    def address(self, name: str) -> str:
        return f"{SUBNET}.{self._numbers[name]}"

    async def set_cuts(self, paths: frozenset[tuple[str, str]]) -> None:
        """Nothing passes on these paths from now on, and everything on all others."""
        changes: dict[str, list[str]] = {}
        for one, two in sorted(paths ^ self._cut):
            rule = f"pref {CUT} from {self.address(one)}"
            line = f"rule add {rule} blackhole" if (one, two) in paths else f"rule del {rule}"
            changes.setdefault(two, []).append(line)
        self._cut = paths
        works = [asyncio.to_thread(self._inside, name, lines) for name, lines in changes.items()]
        await asyncio.gather(*works)

    def _build(self) -> None:
        spaces = [self._space(name) for name in (*self._numbers, HUB)]
        _ip(["-batch", "-"], [f"netns add {space}" for space in spaces])
        hub = self._space(HUB)
        pairs = [
            f"link add v{number} netns {hub} type veth peer name eth0 netns {self._space(name)}"
            for name, number in self._numbers.items()
        ]
        _ip(["-batch", "-"], pairs)
        ports = [f"link set v{number} master hub up" for number in self._numbers.values()]
        self._inside(HUB, ["link add hub type bridge", "link set hub up", *ports])
        for name in self._numbers:
            lines = [
                f"address add {self.address(name)}/24 dev eth0",
                "link set eth0 up",
                "link set lo up",
                f"rule add pref {LOCAL} lookup local",  # moved, so that a cut comes before it
                "rule del pref 0",
            ]
            self._inside(name, lines)

    def _inside(self, name: str, lines: list[str]) -> None:
        _ip(["-n", self._space(name), "-batch", "-"], lines)

    def _space(self, name: str) -> str:
        return self._ours + name


def _ip(arguments: list[str], lines: list[str] | None = None) -> None:
    """Runs `ip`, with these lines as its batch."""
    try:
        ran = subprocess.run(
            ["ip", *arguments],
            input="".join(f"{line}\n" for line in lines or ()),
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"`ip` does not run: {error}") from error
    if ran.returncode:
        said = ran.stderr.strip().partition("\n")[0]
        raise Unavailable(f"`ip` refuses: {said or ran.returncode}")


def _sweep() -> None:
    """Takes away what runs left whose process is no more."""
    folder = Path("/run/netns")
    for path in sorted(folder.glob(f"{PREFIX}*")) if folder.is_dir() else ():
        found = re.match(rf"{PREFIX}(\d+)-", path.name)
        if found and not Path("/proc", found[1]).exists():
            with suppress(Unavailable):
                _ip(["netns", "del", path.name])
