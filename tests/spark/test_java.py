"""Which Java is chosen, and the home that Spark is given."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ordercast.spark import java


def fake(folder: Path, version: str) -> Path:
    """A Java that tells its version, or else what it was called with."""
    binary = folder / "bin" / "java"
    binary.parent.mkdir(parents=True)
    told = f"""echo 'openjdk version "{version}"' >&2"""
    binary.write_text(f'#!/bin/sh\n[ "$1" = -version ] && {told} && exit\necho "$@"\n', "utf-8")
    binary.chmod(0o755)
    return folder


def called(home: Path, *words: str) -> str:
    ran = subprocess.run(
        [home / "bin" / "java", *words], capture_output=True, text=True, check=True
    )
    return ran.stdout.strip()


def test_java_home_comes_first_and_one_flag_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake(tmp_path / "given", "21.0.1")))
    home = java.find_java(tmp_path / "cache")
    assert called(home, "-Xmx1g", "--add-modules=jdk.incubator.vector", "Main", "a b") == (
        "-Xmx1g Main a b"
    )
    assert java.find_java(tmp_path / "cache") == home


def test_a_java_that_is_too_old_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake(tmp_path / "old", "11.0.2")))
    new = fake(tmp_path / "new", "17.0.15")
    monkeypatch.setenv("PATH", f"{new / 'bin'}{os.pathsep}{os.environ['PATH']}")
    home = java.find_java(tmp_path / "cache")
    assert str(new) in (home / "bin" / "java").read_text(encoding="utf-8")


def test_without_any_the_one_from_the_package_index_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java.shutil, "which", lambda name: None)
    home = java.find_java(tmp_path / "cache")
    ran = subprocess.run(
        [home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "version" in ran.stderr
