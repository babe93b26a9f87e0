"""The pages that people read: their programs and commands run, and their links lead somewhere.

Pages are read by tests/pages.py, which says what the word after a fence means. test_readme.py
runs the commands of the README, applications/test_programs.py the programs of its table; a page
that shows one of them word for word relies on that.
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
from tests.applications.test_programs import LAST_LINES
from tests.net.nodes import introduce, until
from tests.pages import (
    ROOT,
    Block,
    Command,
    blocks,
    commands,
    newcomers_copy,
    reason_not_to_run,
    run,
    run_commands,
    write_files,
)

import ordercast
from ordercast.scenario.file import load_scenario
from ordercast.spark.experiment import load_experiment

README = ROOT / "README.md"
PAGES = [
    README,
    ROOT / "CONTRIBUTING.md",
    ROOT / "scenarios" / "README.md",
    ROOT / "experiments" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
FENCE = (
    r"sh|python( node| (examples/)?\w+\.py)?|toml( [\w-]+\.toml)?|text( [\w-]+\.history| output)?"
)
BOUND_SECONDS = 60
NAMES = ("n1", "n2", "n3")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def pages_with(language: str, word: str | None = None) -> list[Path]:
    return [
        page
        for page in PAGES
        if any(word in (None, block.word) for block in blocks(text_of(page), language))
    ]


# --- links and paths -------------------------------------------------------------------------


def prose_of(text: str) -> str:
    """The text without its fenced blocks."""
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors_of(text: str) -> set[str]:
    """The anchors that a page's headings have on GitHub."""
    found = set()
    for heading in re.findall(r"^#+ (.+)$", prose_of(text), re.MULTILINE):
        plain = re.sub(r"[^\w\- ]", "", heading.strip().lower())
        found.add(plain.replace(" ", "-"))
    return found


def broken_links(page: Path, text: str) -> Iterator[str]:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose_of(text)):
        if re.match(r"[a-z]+:", target):
            continue
        place, _, anchor = target.partition("#")
        there = (page.parent / place).resolve() if place else page
        if not there.exists():
            yield f"{target}: there is no such file"
        elif anchor and anchor not in anchors_of(text if there == page else text_of(there)):
            yield f"{target}: no heading has this anchor"


def missing_paths(text: str) -> Iterator[str]:
    """Files named in code font, from the root of the repository or of the package."""
    for path in re.findall(r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|toml|txt|md|history))`", text):
        roots = [ROOT, ROOT / "src", ROOT / "src" / "ordercast", ROOT / "tests" / "protocol"]
        if not any((root / path).exists() for root in roots):
            yield f"{path}: there is no such file"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_and_paths_lead_somewhere(page: Path) -> None:
    text = text_of(page)
    assert [*broken_links(page, text), *missing_paths(text)] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_says_what_it_is(page: Path) -> None:
    for fence in re.findall(r"^```(.*)\n(?:.*\n)*?```$", text_of(page), re.MULTILINE):
        assert re.fullmatch(FENCE, fence), f"```{fence}: tests/pages.py says what may stand here"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_sentences_name_their_subject(page: Path) -> None:
    """Not "Who is invited twice says no", but "A member that is invited twice rejects it"."""
    assert nameless(prose_of(text_of(page))) == []


def nameless(text: str) -> list[str]:
    """Lines with a sentence that begins with a relative clause. Headings and questions may."""
    verbs = (
        "is|are|has|have|was|were|does|had|can|may|comes|goes|waits|wants|hears|knows|says|asks|"
        "leaves|begins"
    )
    begins = re.compile(rf"(^[ *|\d.-]*|[.:;|] )(Who|Whoever|Whom|What) ({verbs}) ")
    return [line for line in text.splitlines() if begins.search(line) and "?" not in line]


def nameless_sentences(source: str) -> list[str]:
    """Sentences of docstrings and messages with such a subject. A docstring may begin with one: it
    is a title then, "Who is in the group now."."""
    begins = re.compile(r"(?:^(?:\d+\. )?|(?<=[.;] )|(?<=\d\. ))(Who|Whoever|Whom) [^.?]*(\?|)")
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for place, part in enumerate(re.split(r"\n\s*\n", node.value)):
                flat_part = flat(part)
                for sentence in begins.finditer(flat_part):
                    is_title = place == 0 and sentence.start() == 0
                    if not is_title and not sentence[2]:
                        found.append(f"{node.lineno}: {sentence[0]}")
    return found


def test_sentences_of_the_source_name_their_subject() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted((ROOT / "src").rglob("*.py"))
        for line in nameless_sentences(text_of(path))
    ]
    assert not found, "\n".join(found)


# --- programs --------------------------------------------------------------------------------


def by_length(pages: list[Path]) -> list[Any]:
    """Programs that use Spark take long."""
    return [
        pytest.param(page, id=name_of(page), marks=pytest.mark.slow(40 if uses_spark(page) else 5))
        for page in pages
    ]


def uses_spark(page: Path) -> bool:
    programs = [block.content for block in blocks(text_of(page), "python") if not block.word]
    return any("ordercast.spark" in program for program in programs)


@pytest.mark.parametrize("page", by_length(pages_with("python", "")))
def test_programs_run(page: Path, tmp_path: Path) -> None:
    text, copy = text_of(page), newcomers_copy(tmp_path / "ordercast")
    write_files(text, copy)
    if page != README:
        run_commands(name_of(page), text, copy, elsewhere=run_elsewhere())
    program = "\n".join(block.content for block in blocks(text, "python") if not block.word)
    ran = run([sys.executable, "-W", "error", "-c", program], copy)
    assert ran.returncode == 0, f"{name_of(page)}: the program fails\n{ran.stderr[-3000:]}"
    for block in blocks(text, "text"):
        if block.word == "output":
            assert flat(block.content) in flat(ran.stdout), f"it printed\n{ran.stdout}"


def flat(text: str) -> str:
    """Without line breaks: pages wrap what programs print on one line."""
    return " ".join(text.split())


@pytest.mark.parametrize("page", pages_with("python"), ids=name_of)
def test_parts_of_examples_are_as_in_the_example(page: Path) -> None:
    for block in blocks(text_of(page), "python"):
        if block.word.startswith("examples/"):
            lines = iter(map(str.strip, text_of(ROOT / block.word).splitlines()))
            for line in map(str.strip, block.content.splitlines()):
                assert line in lines, f"{name_of(page)}: {block.word} has no such line: {line}"


def node_blocks() -> list[Any]:
    return [
        pytest.param(block, id=f"{name_of(page)}:{block.line}")
        for page in pages_with("python", "node")
        for block in blocks(text_of(page), "python")
        if block.word == "node"
    ]


@pytest.mark.parametrize("block", node_blocks())
def test_programs_of_a_node_run(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of three nodes runs the block. Its loops end after all have printed something."""
    monkeypatch.chdir(tmp_path)
    asyncio.run(asyncio.wait_for(at_three_nodes(block, tmp_path), BOUND_SECONDS))


async def at_three_nodes(block: Block, folder: Path) -> None:
    async with AsyncExitStack() as stack:
        nodes = []
        for name in NAMES:
            data = str(folder / name)
            node = ordercast.open(name=name, listen="127.0.0.1:0", data=data)
            nodes.append(await stack.enter_async_context(node))
        introduce(*nodes)
        printed: list[list[object]] = [[] for _ in nodes]
        everyone = asyncio.gather(
            *(program_of(block, node, printed[place].append)() for place, node in enumerate(nodes))
        )
        prints = "print(" in block.content
        await until(
            lambda: everyone.done() or (all(printed) if prints else all(map(has_views, nodes)))
        )
        groups = [group for node in nodes for group in node.groups.values()]
        await asyncio.gather(*(group.leave() for group in groups))
        await everyone


def has_views(node: ordercast.Node) -> bool:
    groups = node.groups.values()
    return bool(groups) and all(len(group.status()["members"]) == len(NAMES) for group in groups)


def program_of(
    block: Block, node: ordercast.Node, printed: Callable[[object], None]
) -> Callable[[], Any]:
    source = f"async def program():\n{textwrap.indent(block.content, '    ')}"
    names: dict[str, Any] = {
        "ordercast": ordercast,
        "node": node,
        "print": lambda *words: printed(words),
        "__builtins__": builtins,
    }
    exec(compile(ast.parse(source), f"line {block.line}", "exec"), names)
    program = names["program"]
    assert isinstance(program, FunctionType)
    return program


# --- commands and files ----------------------------------------------------------------------


def run_elsewhere() -> frozenset[str]:
    """By test_readme.py, and by applications/test_programs.py."""
    programs = [f"python examples/{name}.py" for name in LAST_LINES]
    return frozenset([*(command.text for command in commands(text_of(README))), *programs])


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [page for page in pages_with("sh") if page not in [README, *pages_with("python", "")]],
    ids=name_of,
)
def test_commands_run(page: Path, tmp_path: Path) -> None:
    text, copy = text_of(page), newcomers_copy(tmp_path / "ordercast")
    write_files(text, copy)
    run_commands(name_of(page), text, copy, elsewhere=run_elsewhere())


def only_toml(page: str) -> str:
    [block] = [block for block in blocks(text_of(ROOT / page), "toml") if not block.word]
    return block.content


def test_the_settings_of_a_node_are_as_documented(tmp_path: Path) -> None:
    settings = tmp_path / "n1.toml"
    settings.write_text(only_toml("docs/node.md"), encoding="utf-8")
    assert ordercast.open(settings).config.name == "n1"


def test_the_sample_experiment_loads(tmp_path: Path) -> None:
    copy = newcomers_copy(tmp_path / "ordercast")
    (copy / "experiments" / "sample.toml").write_text(only_toml("docs/spark.md"), encoding="utf-8")
    experiment, trials = load_experiment(copy / "experiments" / "sample.toml")
    assert len(trials) == 4 * experiment.seeds


@pytest.mark.parametrize("path", sorted((ROOT / "experiments").glob("*.toml")), ids=name_of)
def test_every_experiment_loads(path: Path) -> None:
    if not path.stem.endswith("-base"):
        assert load_experiment(path)[1]


def test_the_options_of_the_published_ring_are_as_documented(tmp_path: Path) -> None:
    options = only_toml("docs/tickets-published.md")
    scenario = tmp_path / "ring.toml"
    head = 'name = "ring"\nprocesses = 6\n'
    scenario.write_text(head + options, encoding="utf-8")
    assert load_scenario(scenario).name == "ring"


def test_the_options_of_the_published_membership_are_as_documented(tmp_path: Path) -> None:
    options = only_toml("docs/synchrony-published.md")
    scenario = tmp_path / "membership.toml"
    scenario.write_text(f'name = "membership"\nprocesses = 3\n{options}', encoding="utf-8")
    assert load_scenario(scenario).name == "membership"


def test_the_options_of_the_published_feed_are_as_documented(tmp_path: Path) -> None:
    options = only_toml("docs/feed-published.md")
    scenario = tmp_path / "feed.toml"
    scenario.write_text(f'name = "feed"\nprocesses = 3\n{options}', encoding="utf-8")
    assert load_scenario(scenario).name == "feed"


# --- pages are read as written ---------------------------------------------------------------

SAMPLE = """\
# A title
```sh
$ make demo
# only a comment
ordercast sim a.toml \\
  --seed 1   # one run
ordercast check lake  # exits 1
```
```text
not a command
```
```python
x = 1
```
```python node
y = 2
```
"""


def test_blocks_and_commands_are_read_as_written() -> None:
    assert commands(SAMPLE) == [
        Command(3, "make demo"),
        Command(6, "ordercast sim a.toml --seed 1"),
        Command(7, "ordercast check lake", exits=1),
    ]
    assert list(blocks(SAMPLE, "python")) == [Block(13, "x = 1\n"), Block(16, "y = 2\n", "node")]
    assert commands("no block at all") == []


def test_a_command_that_fails_is_reported_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="README line 2: `false` exits 1, not 0"):
        run_commands("README", "```sh\nfalse\n```\n", tmp_path)
    run_commands("README", "```sh\nfalse  # exits 1\n```\n", tmp_path)


def test_commands_run_in_one_folder(tmp_path: Path) -> None:
    run_commands("README", "```sh\necho 1 > lake\n```\n\n```sh\ntest -s lake\n```\n", tmp_path)


def test_commands_that_are_not_run_are_checked(tmp_path: Path) -> None:
    run_commands("a", "```sh\npip install 'ordercast[cli,net]'\nmake test\n```\n", tmp_path)
    with pytest.raises(AssertionError, match="wings"):
        run_commands("a", "```sh\npip install ordercast[wings]\n```\n", tmp_path)
    assert reason_not_to_run("pip install something-else") is None
    assert reason_not_to_run("make demo") is None


def test_a_link_without_a_target_is_found() -> None:
    page = ROOT / "README.md"
    assert list(broken_links(page, "[a](docs/nowhere.md)")) == [
        "docs/nowhere.md: there is no such file"
    ]
    assert list(broken_links(page, "# The end\n[a](#the-end) [b](#an-end)")) == [
        "#an-end: no heading has this anchor"
    ]
    assert list(missing_paths("`kernel/step.py` `kernel/stairs.py`")) == [
        "kernel/stairs.py: there is no such file"
    ]


def test_a_sentence_without_a_subject_is_found() -> None:
    assert nameless("It waits. Who has begun treats it so.\n") != []
    assert nameless_sentences('"""Waits.\n\nRules. Whoever hears it waits.\n"""') != []
    assert nameless_sentences("x = 'It waits. Who never came\\nis excused.'") != []
    assert nameless_sentences('"""Who is here now."""\nx = "Who is it? Who waits?"') == []
    assert nameless("## What is missing\nWhat is a law? A member that has begun waits.") == []
