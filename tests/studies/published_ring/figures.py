"""The space-time diagrams of docs/tickets-published.md, drawn from the runs themselves.

    python -m tests.studies.published_ring.figures

writes docs/figures/tickets-published-*.svg again. A line a process, time to the right. What happens
stands at equal distances, with its time in seconds below, because what matters is what came before
what. A thick line is a process that owns the ticket. An arrow is a packet; one that ends in a cross
did not arrive. Only the packets that matter are drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from tests.studies.published_ring.shapes import Owned, ownerships

from ordercast.testing import simulate
from ordercast.trace.schema import Row, TraceLevel
from ordercast.units import MILLISECOND

ROOT = Path(__file__).resolve().parents[3]
STEP, LANE, LEFT, TOP = 74, 58, 112, 46
COLOURS = ("#c0392b", "#2563a8")
STYLE = (
    "text{font:12px sans-serif;fill:#222}.time{font-size:10px;fill:#777}.what{font-size:10.5px}"
    ".what,.note{paint-order:stroke;stroke:#fff;stroke-width:3px}.lane{stroke:#bbb}"
    ".packet{stroke:#555;fill:none}.cross{stroke:#c0392b;stroke-width:2}"
    ".owns{stroke-width:7;stroke-linecap:round;opacity:.75}.note{font-size:11px;font-style:italic}"
)

Keep = Callable[[str, str, str], bool]
"""Whether a packet is drawn: its name, who sent it, and to whom."""


class Figure(NamedTuple):
    name: str
    title: str
    lanes: Sequence[tuple[str, str]]  # processes, and their part
    ticket: int
    since: int  # milliseconds
    until: int
    keep: Keep
    notes: Sequence[tuple[int, str, str]] = ()  # milliseconds, process, what
    longest: int = 2 * MILLISECOND  # that a packet takes which arrives at all


class Packet(NamedTuple):
    name: str
    sender: str
    to: str
    left: int
    came: int | None


class Mark(NamedTuple):
    at: int
    process: str
    text: str


def packets(rows: Sequence[Row], figure: Figure) -> list[Packet]:
    """Those that were sent in time, each with the receipt that belongs to it."""
    came: dict[tuple[str, str, str], list[int]] = {}
    for row in rows:
        if row.kind == "receive":
            key = (row.message or "", row.peer or "", row.process)
            came.setdefault(key, []).append(row.at)
    found = []
    for row in rows:
        key = (row.message or "", row.process, row.peer or "")
        if row.kind == "send" and inside(row.at, figure) and figure.keep(*key):
            later = [at for at in came.get(key, []) if row.at < at <= row.at + figure.longest]
            found.append(Packet(*key, row.at, later[0] if later else None))
    return found


def inside(at: int, figure: Figure) -> bool:
    return figure.since * MILLISECOND <= at < figure.until * MILLISECOND


def marks(rows: Sequence[Row], figure: Figure) -> list[Mark]:
    lanes = [name for name, _ in figure.lanes]
    found = [Mark(at * MILLISECOND, name, text) for at, name, text in figure.notes]
    for row in rows:
        if inside(row.at, figure) and row.process in lanes:
            if row.kind == "ticket" and row.cause != "wanted":
                found.append(Mark(row.at, row.process, f"{row.cause} {row.index}"))
            elif row.kind == "exclude":
                found.append(Mark(row.at, row.process, f"excludes {row.peer}"))
    return found


def draw(figure: Figure, rows: Sequence[Row]) -> str:
    sent, marked = packets(rows, figure), marks(rows, figure)
    moments = {packet.left for packet in sent} | {mark.at for mark in marked}
    moments |= {packet.came for packet in sent if packet.came is not None}
    order = sorted(moments)
    x = {at: LEFT + STEP * (place + 1) for place, at in enumerate(order)}
    y = {name: TOP + LANE * place for place, (name, _) in enumerate(figure.lanes)}
    width, height = LEFT + STEP * (len(order) + 1), TOP + LANE * len(y) + 22
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        f"<title>{escape(figure.title)}</title><style>{STYLE}</style>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z" fill="#555"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    for name, role in figure.lanes:
        parts.append(line("lane", LEFT, y[name], width - 12, y[name]))
        parts.append(f'<text x="8" y="{y[name] + 4}">{escape(f"{name} = {role}")}</text>')
    for at in order:
        parts.append(words("time", x[at], height - 10, f"{at / 1e9:.3f}".rstrip("0").rstrip(".")))
    owned = [one for one in ownerships(rows) if one.ticket == figure.ticket and one.process in y]
    shown = sorted(one for one in owned if one.end > order[0] and one.start <= order[-1])
    shown.sort(key=lambda one: one.start)
    for one, colour in zip(shown, COLOURS, strict=True):
        parts.append(bar(one, x, y[one.process], width, colour))
    named: set[tuple[str, str, int]] = set()
    for packet in sent:
        what = (packet.name, packet.sender, packet.left)  # to several at once: named once
        parts.append(arrow(packet, x, y, "" if what in named else packet.name.upper()))
        named.add(what)
    for mark in marked:
        parts.append(f'<circle cx="{x[mark.at]}" cy="{y[mark.process]}" r="4" fill="#222"/>')
        parts.append(words("note", x[mark.at], y[mark.process] - 11, mark.text))
    return "".join([*parts, "</svg>\n"])


def bar(one: Owned, x: dict[int, int], y: int, width: int, colour: str) -> str:
    """From where it begins to own, or from the edge; to where it ends, or to the edge."""
    begins, ends = x.get(one.start, LEFT), x.get(one.end, width - 16)
    return line("owns", begins, y, ends, y, f' stroke="{colour}"')


def line(kind: str, x1: float, y1: float, x2: float, y2: float, more: str = "") -> str:
    places = f'x1="{x1:.0f}" y1="{y1:.0f}" x2="{x2:.0f}" y2="{y2:.0f}"'
    return f'<line class="{kind}" {places}{more}/>'


def words(kind: str, x: float, y: float, text: str) -> str:
    place = f'x="{x:.0f}" y="{y:.0f}" text-anchor="middle"'
    return f'<text class="{kind}" {place}>{escape(text)}</text>'


def arrow(packet: Packet, x: dict[int, int], y: dict[str, int], label: str) -> str:
    x1, y1, y2 = x[packet.left], y[packet.sender], y[packet.to]
    if packet.came is None:
        x2, end = x1 + STEP * 0.35, y1 + (y2 - y1) * 0.45
        cross = line("cross", x2 - 5, end - 5, x2 + 5, end + 5)
        cross += line("cross", x2 - 5, end + 5, x2 + 5, end - 5)
        return line("packet", x1, y1, x2, end) + cross + words("what", x2 + 2, end + 17, label)
    x2 = x[packet.came]
    middle = (y1 + y2) / 2 + 4
    down = 14 if abs(y2 - y1) > LANE else 0
    return line("packet", x1, y1, x2, y2, ' marker-end="url(#head)"') + words(
        "what", (x1 + x2) / 2, middle + down, label
    )


EXCLUSION = ("Exclude", "Reqcoord", "Ackcoord", "Ackcjoin")
STAR = (
    ("n3", "a₂, ticket 4"),
    ("n2", "a₁, ticket 3"),
    ("n4", "p, ticket 2"),
    ("n1", "r, ticket 1"),
    ("n5", "q, ticket 0"),
    ("n6", "s"),
)


def among(*pairs: str) -> Keep:
    """Packets written as `Name from to`, and every step of an exclusion."""
    wanted = {tuple(pair.split()) for pair in pairs}
    return lambda name, sender, to: name in EXCLUSION or (name, sender, to) in wanted


FIGURES = (
    Figure(
        "ce1",
        "CE-1: somebody who is out agrees; n7 and n9 own ticket 1",
        (
            ("n1", "d, ticket 7"),
            ("n2", "c, ticket 6"),
            ("n3", "x"),
            ("n4", "b, ticket 4"),
            ("n5", "a, ticket 3"),
            ("n6", "p, ticket 2"),
            ("n7", "r, ticket 1"),
            ("n8", "q, ticket 0"),
            ("n9", "s"),
        ),
        1, 10_210, 12_400,
        among("Update n6 n7", "Alive n1 n7", "Alive n2 n7", "Alive n4 n7"),
        ((10_225, "n7", "cut: r to p"),),
    ),
    Figure(
        "ce2",
        "CE-2: one broken link; n1 and n6 own ticket 1",
        STAR, 1, 5_000, 7_050,
        among("Alive n2 n1", "Alive n3 n1", "Update n4 n1"),
        ((5_000, "n1", "check"), (5_120, "n4", "cut: p and r"), (6_000, "n1", "check: 2 heard"),
         (6_150, "n4", "last round")),
    ),
    Figure(
        "ce2b",
        "CE-2b: a lost status; n5 and n6 own ticket 1",
        (
            ("n1", "a₂, ticket 4"),
            ("n2", "a₁, ticket 3"),
            ("n3", "p, ticket 2"),
            ("n4", "q, ticket 0"),
            ("n5", "s"),
            ("n6", "s₂"),
        ),
        1, 5_950, 8_000,
        among("Cjoin n5 n3"),
        ((6_003, "n3", "no status"), (6_150, "n3", "last round")),
    ),
    Figure(
        "ce3",
        "CE-3: two who give; n6 and n7 own ticket 1",
        (
            ("n3", "a₂, ticket 5"),
            ("n2", "a₁, ticket 4"),
            ("n4", "pp, ticket 3"),
            ("n1", "p, ticket 2"),
            ("n5", "r, ticket 0"),
            ("n6", "y"),
            ("n7", "z"),
        ),
        1, 5_050, 8_950,
        among("Update n4 n1"),
        ((5_120, "n4", "cut: pp and p"), (6_000, "n1", "check: 2 heard"),
         (7_150, "n4", "last round")),
    ),
    Figure(
        "ce4",
        "CE-4: a late ALIVE; n1 and n6 own ticket 1",
        STAR, 1, 5_000, 8_050,
        among("Alive n2 n1", "Alive n3 n1", "Alive n4 n1"),
        ((5_120, "n1", "cut: r to p"), (6_000, "n1", "check: 2"), (7_000, "n1", "check: 2"),
         (7_150, "n4", "last round")),
        1011 * MILLISECOND,
    ),
    Figure(
        "ce5",
        "CE-5: a process that stands still; n1 and n6 own ticket 1",
        STAR, 1, 5_000, 9_050,
        among("Alive n2 n1", "Update n4 n1"),
        ((5_120, "n1", "stands still"), (7_150, "n4", "last round"), (7_620, "n1", "goes on")),
        2500 * MILLISECOND,
    ),
)  # fmt: skip


def path_of(figure: Figure) -> Path:
    return ROOT / "docs" / "figures" / f"tickets-published-{figure.name}.svg"


def made(figure: Figure) -> str:
    scenario = ROOT / "scenarios" / f"tickets-published-{figure.name}.toml"
    return draw(figure, simulate(scenario, 1, level=TraceLevel.WIRE).trace.rows)


if __name__ == "__main__":
    for each in FIGURES:
        path_of(each).write_text(made(each), encoding="utf-8")
