"""A space-time diagram as SVG: a line a process, time to the right, arrows from send to delivery.

The rows are those of a witness: few. They stand in the order of `check.diagram`, at equal
distances, because what matters is what came before what; the times stand below. The page that holds
it has the arrows' head and all colours.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from ordercast.check.diagram import in_order
from ordercast.check.verdict import row_event, row_writer
from ordercast.trace.schema import Row

MOST_ROWS = 24
STEP, LANE, LEFT, TOP = 118, 62, 70, 34


def draw(rows: Sequence[Row], processes: Sequence[str] = ()) -> str:
    """The rows as SVG, or nothing if they are too many to be looked at.

    With processes: these have a line too, if nothing happened there.
    """
    shown = in_order(rows)
    if not shown or len(shown) > MOST_ROWS:
        return ""
    writers = {row.process for row in shown}
    lanes = list(dict.fromkeys(map(row_writer, shown)))
    lanes += [name for name in processes if name not in writers]
    lanes.sort(key=lambda name: (len(name), name))
    place = {
        id(row): (LEFT + STEP * number, TOP + LANE * lanes.index(row_writer(row)))
        for number, row in enumerate(shown)
    }
    width, height = LEFT + STEP * len(shown), TOP + LANE * len(lanes)
    parts = [
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
        f"<title>{escape(_title(shown))}</title>",
    ]
    for number, name in enumerate(lanes):
        y = TOP + LANE * number
        parts.append(f'<line class="lane" x1="{LEFT - 20}" y1="{y}" x2="{width - 10}" y2="{y}"/>')
        parts.append(f'<text x="4" y="{y + 4}">{escape(name)}</text>')
    parts += _arrows(shown, place)
    start = min(row.at for row in shown)
    for row in shown:
        x, y = place[id(row)]
        bad = " bad" if row.kind in ("lose", "crash") else ""
        parts.append(f'<circle class="dot{bad}" cx="{x}" cy="{y}" r="5"/>')
        parts.append(_text(x, y - 11, _label(row)))
        parts.append(_text(x, y + 19, f"+{(row.at - start) / 1e6:.1f} ms", "when"))
    return "".join([*parts, "</svg>"])


def _text(x: int, y: int, text: str, kind: str = "") -> str:
    """Words in the middle above or below a point."""
    shown = f' class="{kind}"' if kind else ""
    return f'<text{shown} x="{x}" y="{y}" text-anchor="middle">{escape(text)}</text>'


def _arrows(rows: list[Row], place: dict[int, tuple[int, int]]) -> list[str]:
    """From where an event was sent to where it was delivered."""
    sent = {(row.group, row.origin, row.number): row for row in rows if row.kind == "submit"}
    arrows = []
    for row in rows:
        origin = sent.get((row.group, row.origin, row.number))
        if row.kind != "deliver" or origin is None or origin.process == row.process:
            continue
        (x1, y1), (x2, y2) = place[id(origin)], place[id(row)]
        shorter = 7 / max(1.0, ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5)
        ends = (x1, y1, x2 - (x2 - x1) * shorter, y2 - (y2 - y1) * shorter)
        x1_, y1_, x2_, y2_ = (f"{value:.1f}" for value in ends)
        arrows.append(
            f'<line class="arrow" x1="{x1_}" y1="{y1_}" x2="{x2_}" y2="{y2_}" '
            'marker-end="url(#arrow-head)"/>'
        )
    return arrows


def _label(row: Row) -> str:
    if row.kind in ("submit", "deliver", "lose", "recover"):
        return f"{row.kind} {row_event(row)}"
    if row.kind == "view":
        members = ",".join(row.members or ())
        return f"view {members}" if len(members) < 12 else f"view of {len(row.members or ())}"
    if row.kind == "ticket":
        return f"{row.cause} ticket {row.index}"
    return f"{row.kind} {row.peer}" if row.peer is not None else row.kind


def _title(rows: list[Row]) -> str:
    return "; ".join(f"{row_writer(row)}: {_label(row)}" for row in rows)
