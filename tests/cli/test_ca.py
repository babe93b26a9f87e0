"""`ordercast ca`: what it writes, what it prints, and one sentence for each mistake."""

from __future__ import annotations

import argparse
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest

from ordercast.cli import ca
from ordercast.errors import UsageError


class Ran(NamedTuple):
    out: str
    err: str


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]):
    """Runs the command alone, as `main` does with all of them. Mistakes stay UsageErrors."""
    parser = argparse.ArgumentParser(prog="ordercast")
    ca.add_arguments(parser)

    def run(*arguments: object) -> Ran:
        chosen = parser.parse_args([str(argument) for argument in arguments])
        assert ca.run(chosen) == 0
        return Ran(*capsys.readouterr())

    return run


def test_init_writes_two_files_and_says_what_they_are_for(run, tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "certs"
    ran = run("init", folder, "--cluster", "shop")
    assert sorted(path.name for path in folder.iterdir()) == ["ca.key", "ca.pem"]
    assert (folder / "ca.key").stat().st_mode & 0o777 == 0o600
    assert f"wrote {folder / 'ca.pem'}: every node needs it" in ran.out
    assert f"wrote {folder / 'ca.key'}: keep it secret" in ran.out
    assert f"ordercast ca issue {folder} NAME" in ran.err.replace("\n", "")


def test_issue_prints_what_belongs_into_the_configuration(run, tmp_path: Path) -> None:
    folder = tmp_path / 'a "strange" folder'
    run("init", folder, "--cluster", "shop")
    ran = run("issue", folder, "n1", "--host", "localhost", "--host", "::1", "--days", 30)
    assert tomllib.loads(ran.out) == {
        "tls": {
            "authority": str(folder / "ca.pem"),
            "certificate": str(folder / "n1.pem"),
            "key": str(folder / "n1.key"),
        }
    }
    assert '# for name = "n1", cluster = "shop"' in ran.out
    assert (folder / "n1.key").stat().st_mode & 0o777 == 0o600
    configured = tomllib.loads('name = "n1"\ncluster = "shop"\n' + ran.out)
    assert configured["tls"]["key"].endswith("n1.key")


def test_the_cluster_of_the_defaults_needs_no_option(run, tmp_path: Path) -> None:
    run("init", tmp_path)
    assert 'cluster = "ordercast"' in run("issue", tmp_path, "n1").out


def test_the_authority_is_never_overwritten(run, tmp_path: Path) -> None:
    run("init", tmp_path)
    before = (tmp_path / "ca.key").read_bytes()
    with pytest.raises(UsageError, match="has an authority already"):
        run("init", tmp_path)
    assert (tmp_path / "ca.key").read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("issue", "{}", "a/b"), "'a/b' is no name for a node"),
        (("issue", "{}", "CA"), "cannot be named 'CA'"),
        (("issue", "{}", "n1", "--days", "0"), "0 days: give 1 to"),
        (("issue", "{}", "n1", "--days", "99999"), "99999 days: give 1 to"),
        (("issue", "{}", "n1", "--host", "here:7001"), "'here:7001' is not a host"),
        (("issue", "{}/none", "n1"), "is not a folder"),
        (("init", "{}/new", "--cluster", "a b"), "'a b' is no name for a cluster"),
        (("init", "{}/ca.pem"), "is not a folder"),
    ],
)
def test_a_mistake_is_one_sentence(run, tmp_path: Path, arguments, said: str) -> None:
    run("init", tmp_path)
    with pytest.raises(UsageError) as caught:
        run(*(word.format(tmp_path) for word in arguments))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
