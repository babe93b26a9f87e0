"""What a script may do to a machine of the published protocol, beside messages and time.

The paper leaves open how a machine finds that communication has broken (footnote 4), and when it
intercepts a foreign message. So a scenario may say so: `kind = "give"`, `input =
"CommunicationBreak"`, `values = { peer = "n4" }`.
"""

from __future__ import annotations

from dataclasses import dataclass

from ordercast.kernel.inputs import Input


@dataclass(frozen=True, slots=True)
class CommunicationBreak(Input):
    """Communication with a machine has broken, as far as this machine can tell."""

    group: str
    peer: str


@dataclass(frozen=True, slots=True)
class Intercept(Input):
    """A message of a machine outside of the configuration was intercepted."""

    group: str
