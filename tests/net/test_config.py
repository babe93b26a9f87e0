"""A node's settings: what may be a name, and how wrong ones are reported."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.net.nodes import Cluster, live

import ordercast
from ordercast import Config, UsageError
from ordercast.net.config import GroupRules, data_folder, table_of
from ordercast.types import objection_to_group

GOOD = ["orders", "world/7", "a", "x" * 100, "A.b_c-d/e", "/", "0"]
A_NAME = "give a name of letters, digits and . _ - that is not . or .."
WRONG = ["", "x" * 101, "two words", "new\n", "é", "a:b", 'a"b', 7, None, b"orders"]


@pytest.mark.parametrize("name", GOOD)
def test_valid_names_of_groups_are_accepted(name: str, tmp_path: Path) -> None:
    assert objection_to_group(name) is None
    path = tmp_path / "n1.toml"
    path.write_text(f'name = "n1"\n{table_of(name)}\nmembers = ["n1"]\n', encoding="utf-8")
    assert ordercast.open(path).config.group == {name: GroupRules(members=["n1"])}


@pytest.mark.parametrize("name", WRONG)
def test_invalid_names_of_groups_are_rejected(name: object) -> None:
    objection = objection_to_group(name)
    assert objection is not None
    assert objection.endswith("is no name for a group: give 1 to 100 letters, digits and . _ - /")
    assert len(objection) < 200


def test_a_wrong_name_in_a_file_is_reported_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "n1.toml"
    path.write_text('name = "n1"\n[group."two words"]\n', encoding="utf-8")
    with pytest.raises(UsageError, match=r"n1\.toml.*'two words' is no name for a group"):
        ordercast.open(path)
    with pytest.raises(ValueError, match="'two words' is no name for a group"):
        Config(name="n1", group={"two words": GroupRules()})


@pytest.mark.parametrize("name", ["...", ".n1", "n1.", "-", "x" * 100])
def test_other_names_of_dots_and_letters_are_accepted(name: str) -> None:
    assert ordercast.open(name=name, cluster=name).config.name == name


def test_names_of_nodes_have_no_slash() -> None:
    with pytest.raises(UsageError, match="name"):
        ordercast.open(name="world/7")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"name": "my node!"}, f"name: 'my node!': {A_NAME}"),
        ({"name": "n1\n"}, f"name: 'n1\\n': {A_NAME}"),
        ({"name": "."}, f"name: '.': {A_NAME}"),
        ({"name": ".."}, f"name: '..': {A_NAME}"),
        ({"cluster": ".."}, f"cluster: '..': {A_NAME}"),
        ({"name": ""}, "name: give at least 1 character"),
        (
            {"listen": "a:1\n"},
            "listen: 'a:1\\n': give an address with a port, such as 127.0.0.1:7101",
        ),
        ({"seeds": ["1.2.3.4:99999"]}, "'1.2.3.4:99999': 99999 is no port, 1 to 65535 are"),
        ({"seeds": ["n1:0"]}, "'n1:0': 0 is no port, 1 to 65535 are"),
        ({"peers": {"n2": "n1:0"}}, "'n1:0': 0 is no port, 1 to 65535 are"),
        ({"advertise": "n1:0"}, "'n1:0': 0 is no port, 1 to 65535 are"),
        ({"listen": "n1:70000"}, "'n1:70000': 70000 is no port, 0 to 65535 are"),
        ({"data": ""}, "data: '' is no folder: give its path, or leave it out"),
        ({"data": "a\0b"}, "data: 'a\\x00b' is no folder: give its path, or leave it out"),
        ({"listen": "7502"}, "listen: '7502': give an address with a port, such as 127.0.0.1:7101"),
        ({"peers": {"n2": "7502"}}, "peers: give an address with a port, such as 127.0.0.1:7101"),
        (
            {"peers": {"n 2": "a:1"}},
            f"peers: a name in it: {A_NAME}",
        ),
        (
            {"group": {"g": {"members": ["n 2"]}}},
            f"group.members[1]: {A_NAME}",
        ),
    ],
)
def test_what_is_not_a_name_or_an_address_is_reported_in_words(
    given: dict[str, object], said: str
) -> None:
    with pytest.raises(UsageError) as caught:
        ordercast.open(**{"name": "n1", **given})
    assert str(caught.value) == f"ordercast.open: {said}"


def test_an_address_has_one_port() -> None:
    with pytest.raises(UsageError, match=r"'127\.0\.0\.1:7001:5' is no address with a port"):
        ordercast.open(name="n1", seeds=["127.0.0.1:7001:5"])
    for seed in ("[::1]:7001", "::1:7001", "[fe80::1%eth0]:7001", "n1.shop:7001"):
        assert ordercast.open(name="n1", seeds=[seed]).config.seeds == [seed]


def test_tables_are_quoted_where_toml_wants_it() -> None:
    assert table_of("orders") == "[group.orders]"
    assert table_of("world/7") == '[group."world/7"]'
    assert table_of("v1.2") == '[group."v1.2"]'


def test_the_limit_per_peer_is_written_as_a_size() -> None:
    assert ordercast.open(name="n1").config.peer_limit == 32 << 20
    assert ordercast.open(name="n1", peer_limit="1MiB").config.peer_limit == 1 << 20
    with pytest.raises(UsageError, match="peer_limit: '1 lot' is not a size"):
        ordercast.open(name="n1", peer_limit="1 lot")


# --- where the data is -------------------------------------------------------------------------


def test_the_data_folder_is_the_one_that_is_given(tmp_path: Path) -> None:
    assert data_folder(Config(name="n1", data="here")) == Path("here")
    assert data_folder(Config(name="n1", data=str(tmp_path))) == tmp_path


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"ORDERCAST_DATA": "/srv/data", "XDG_STATE_HOME": "/state"}, "/srv/data/shop/n1"),
        ({"XDG_STATE_HOME": "/state", "HOME": "/ann"}, "/state/ordercast/shop/n1"),
        ({"HOME": "/ann"}, "/ann/.local/state/ordercast/shop/n1"),
        ({"HOME": "/ann", "XDG_STATE_HOME": "relative"}, None),
        ({"HOME": "/ann", "XDG_STATE_HOME": ""}, None),
    ],
)
def test_the_default_data_folder_does_not_depend_on_the_working_directory(
    variables: dict[str, str], folder: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("ORDERCAST_DATA", "XDG_STATE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    expected = Path(folder or "/ann/.local/state/ordercast/shop/n1")
    assert data_folder(Config(name="n1", cluster="shop")) == expected


def test_a_user_without_a_home_folder_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ORDERCAST_DATA", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    with pytest.raises(UsageError, match='has no home folder: give data = "FOLDER"'):
        data_folder(Config(name="n1"))


@live
async def test_a_node_says_where_its_data_is(cluster: Cluster) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ORDERCAST_DATA", str(cluster.folder / "state"))
        patch.chdir(cluster.folder)
        async with ordercast.open(name="n1") as node:
            folder = cluster.folder / "state" / "ordercast" / "n1"
            assert node.status()["data"] == str(folder)
            assert {path.name for path in folder.iterdir()} >= {"incarnation", "lock", "owner"}
        assert not cluster.log.text
        (cluster.folder / ".ordercast" / "n1").mkdir(parents=True)
        async with ordercast.open(name="n1"):
            former = cluster.folder / ".ordercast" / "n1"
            assert f"keeps its data in {folder}, and not in {former}" in cluster.log.text
