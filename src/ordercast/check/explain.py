"""A verdict in words, with a picture of its witness."""

from __future__ import annotations

from textwrap import fill

from ordercast.check.diagram import WIDTH, draw
from ordercast.check.laws import LAWS
from ordercast.check.verdict import Answer, Verdict


def explain(verdict: Verdict, width: int = WIDTH) -> str:
    """What was found, what the law says, and the rows that show it, in words of this width.

    The diagram takes what it needs, up to 100 columns.
    """
    text = f"{verdict.law} {_FOUND[verdict.answer]}"
    parts = [_sentence(f"{text}: {verdict.why}" if verdict.why else text, width)]
    law = LAWS.get(verdict.law)
    if law is not None and verdict.answer is not Answer.HOLDS:
        parts.append(_sentence(f"The law says: {law.says}", width))
    if verdict.witness:
        parts.append("\n" + draw(verdict.witness))
    return "\n".join(parts)


_FOUND = {
    Answer.HOLDS: "holds",
    Answer.BROKEN: "is broken",
    Answer.UNKNOWN: "cannot be decided",
}


def _sentence(text: str, width: int) -> str:
    return fill(text + "." * (not text.endswith(".")), width)
