"""Asking, before a node with an empty folder opens: which incarnations of its name others know.

It dials the places that it was given, and those that the answers name. Each node that is there
answers with the newest incarnation that it knows, and forgets the caller: nothing is agreed with
somebody who has no number yet. Sure: everybody answered. Nobody waits long, for a number can be
settled without: see `kernel/identity.py`. Then it asks those that answered once more, as the
incarnation that it will be: they report that number to whoever asks after it. The places that
answers name are of use later, too: of many that start at once a seed refuses some for a while.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Iterable
from random import Random
from typing import NamedTuple, TypeAlias

from ordercast.errors import PeerError
from ordercast.kernel.identity import LAST, first_incarnation
from ordercast.net.handshake import Security
from ordercast.net.identity import Identity, Incarnation
from ordercast.types import NodeId
from ordercast.wire import greeting
from ordercast.wire.framing import LARGEST_GREETING, FrameKind, FrameReader, frame
from ordercast.wire.greeting import ASKING, PROTOCOL_VERSION, Hello

log = logging.getLogger("ordercast.net")

ASK_SECONDS = 1.0
MOST_PLACES = 32
"""Places that are asked because an answer named them."""


Told: TypeAlias = dict[str, dict[str, str]]
"""By who answered, where others are."""


class Answers(NamedTuple):
    reported: list[NodeId]  # incarnations of the name that somebody knows, one by each
    places: list[str]  # where somebody answered
    is_sure: bool  # everybody that anybody knows has answered
    told: Told


async def begin(
    identity: Identity, cluster: str, places: list[str], security: Security, chance: Random
) -> tuple[Incarnation, Told]:
    """The next incarnation of a folder. If that is empty: one that others cannot mistake for
    another, and where they are. It is durable before anybody hears of its number."""
    if not identity.is_new:
        return identity.next(), {}
    answers = await ask(NodeId(identity.name), cluster, places, security)
    number = first_incarnation(identity.name, answers.reported, answers.is_sure, chance).incarnation
    if not answers.reported:
        return identity.draw(number), answers.told
    us = identity.begin(number, reborn=True)
    await ask(us.node, cluster, answers.places, security)
    return us, answers.told


async def ask(me: NodeId, cluster: str, places: Iterable[str], security: Security) -> Answers:
    """Asks all of these places at once, and all that they name, for so long at the most.

    With a number `me` is the incarnation that it will be, and asks nobody else.
    """
    name = me.name
    tasks: dict[str, asyncio.Task[Hello | None]] = {}

    def dial(place: str) -> None:
        if place not in tasks:
            asking = _ask(place, me, cluster, security)
            tasks[place] = asyncio.get_running_loop().create_task(asking)

    for place in places:
        dial(place)
    most = len(tasks) + (0 if me.incarnation else MOST_PLACES)
    answers: dict[str, Hello] = {}
    try:
        async with asyncio.timeout(ASK_SECONDS):
            while waiting := {task: place for place, task in tasks.items() if not task.done()}:
                done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    if (answer := task.result()) is None:
                        continue
                    answers[waiting[task]] = answer
                    for other, place in answer.places.items():
                        if other != name and len(tasks) < most:
                            dial(place)
    except TimeoutError:
        log.debug("%s asked for its incarnation: not everybody answered in time", name)
    finally:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
    # One for each node, though it may have answered at several places: it is believed once.
    by_teller = {answer.node.name: answer.newest.get(name, -1) for answer in answers.values()}
    reported = [NodeId(name, number) for number in by_teller.values() if 0 <= number <= LAST]
    told = {answer.node.name: answer.places for answer in answers.values()}
    return Answers(reported, list(answers), len(answers) == len(tasks), told)


async def _ask(place: str, me: NodeId, cluster: str, security: Security) -> Hello | None:
    """The answer of the node at this place; None: there is none."""
    host, _, port = place.rpartition(":")
    tls = security.client
    question = Hello(PROTOCOL_VERSION, cluster, me, 0, features=[ASKING])
    try:
        if not 0 < int(port) < 1 << 16:
            raise ValueError(f"{port} is no port")
        reader, writer = await asyncio.open_connection(
            host.strip("[]"), int(port), ssl=tls, server_hostname="" if tls else None
        )
        try:
            writer.write(frame(FrameKind.HELLO, greeting.encode(question)))
            answer = await _answer(reader)
            _check(answer, cluster, security, writer.transport)
            return answer
        finally:
            writer.transport.abort()
    except (OSError, PeerError, ValueError, ssl.SSLError) as error:
        log.debug("asking %s: %s", place, error)
        return None


async def _answer(reader: asyncio.StreamReader) -> Hello:
    frames = FrameReader()
    while data := await reader.read(LARGEST_GREETING):
        for kind, body in frames.feed(data):
            if kind == FrameKind.HELLO:
                return greeting.decode(body, Hello)
            raise PeerError(f"a frame of kind {kind} instead of an answer")
    raise PeerError("it hung up without an answer")


def _check(
    answer: Hello, cluster: str, security: Security, transport: asyncio.BaseTransport
) -> None:
    if reason := greeting.objection(answer, cluster):
        raise PeerError(reason)
    if security.certified is not None:
        certified = security.certified(transport)
        if certified != answer.node.name:
            raise PeerError(f"the certificate is of {certified!r}, not of {answer.node.name!r}")
