"""Gossip of one event to millions of processes, as rounds: every message is drawn, with numpy.

    reach(Journey(processes=10_000_000, fan_out=4, hops=12, loss=0.01))

returns how many processes have the event, round by round.

The gossip is that of the family `gossip`: a process that has the event relays it once a round to
`fan_out` others, each time a hop older, until it is older than `hops`; of copies the youngest age
counts, and what has terminated at a process does not start again. There is one event, so no message
is full, and no memory of ids too short.

Rules.
 1. Process 0 makes the event and relays it at once. Its rounds, as everybody's, come after that.
 2. A round has `slots` slots. Each process has one, drawn by chance, in which it relays. What is
    sent in one slot is there in the next: so a message takes half a slot, on average. With one
    slot all relay together, which is called in step.
 3. No process hits itself, and the targets of one relay are distinct. `loss` is of one message.
 4. Crashed processes had crashed before the event was made, and are still sent to. They are those
    with the highest numbers: names mean nothing here, so it may as well be those.
 5. With `view_size` a process knows that many others, drawn by chance, and chooses among them. It
    draws others every `view_lasts` rounds; 0: it knows the same for ever. A view that is drawn anew
    in every round is as good as knowing everybody.

Chance is a hash of (seed, what for, slot, process), so a draw does not depend on the order in which
draws are made: a seed gives the same numbers on every machine.

A view is never stored: entry i of a process is (a i + b) modulo a prime, where a and b are hashed
from its number. Entries are distinct, any one of them and any two of them are uniform; three are
not independent. `docs/rounds.md` compares this with the simulator.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from ordercast.errors import UsageError

MOST_PROCESSES = 1 << 27
"""A draw has 64 bits: 37 choose a target, so that none is favoured by more than 0.1 %; 27, loss."""
MOST_FAN_OUT = 64
MOST_HOPS = 100
MOST_SLOTS = 64
MOST_VIEW = 10_000

CHUNK = 1 << 15  # processes whose draws are made together: they fit the cache

NEVER = 255  # the code of a process that does not have the event
DONE = 0  # that has it, and relays it no more; below NEVER, 1 + its age

Words: TypeAlias = npt.NDArray[np.uint64]
Codes: TypeAlias = npt.NDArray[np.uint8]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_LOSS_BITS = np.uint64(27)
_TARGET_BITS = np.uint64(37)
_LOSS_MASK = np.uint64((1 << 27) - 1)
_RELAY, _VIEW, _SLOT = 1, 2, 3  # what a draw is for


class Journey(msgspec.Struct, frozen=True, kw_only=True):
    """One event's journey. UsageError says what cannot be."""

    processes: int
    fan_out: int
    hops: int
    loss: float = 0.0
    crash: float = 0.0  # share of the processes that are gone
    view_size: int | None = None  # None: everybody knows everybody
    view_lasts: int = 0  # rounds; 0: for ever
    slots: int = 1
    seed: int = 1

    def __post_init__(self) -> None:
        _between("processes", self.processes, 2, MOST_PROCESSES)
        _between("fan-out", self.fan_out, 1, min(MOST_FAN_OUT, self.processes - 1))
        _between("hops", self.hops, 0, MOST_HOPS)
        _between("slots", self.slots, 1, MOST_SLOTS)
        _between("view lasts", self.view_lasts, 0, 1 << 20)
        _between("seed", self.seed, 0, (1 << 63) - 1)
        if self.view_size is not None:
            _between("view size", self.view_size, 1, min(MOST_VIEW, self.processes - 1))
        for name, share in (("loss", self.loss), ("crash", self.crash)):
            if not 0 <= share < 1:  # NaN is neither
                raise UsageError(f"{name} must be a share from 0 to below 1, not {share}")

    @property
    def live(self) -> int:
        """Processes that are there, as the planner counts them: the creator is one."""
        return 1 + round((self.processes - 1) * (1 - self.crash))

    @property
    def most_ticks(self) -> int:
        """Slots after which nobody relays: the youngest copy is a hop older after each round."""
        return (self.hops + 2) * (self.slots + 1)


def _between(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise UsageError(f"{name} must be {least} to {most}, not {value}")


def reach(journey: Journey) -> list[int]:
    """How many processes have the event 0, 1, ... rounds after it was made."""
    population = Population(journey)
    coming = nothing(journey.live)
    reached = Reached(journey)
    for tick in range(journey.most_ticks + 1):
        population.receive(coming)
        reached.note(tick, population.reached())
        coming.fill(NEVER)
        if not population.relay(tick, coming) and not population.active():
            break
    return reached.by_round


class Reached:
    """The curve: what was counted at the beginnings of rounds, and at last."""

    def __init__(self, journey: Journey) -> None:
        self.by_round: list[int] = []
        self._slots = journey.slots

    def note(self, tick: int, count: int) -> None:
        """Ticks come in order. What is in a round not yet over stands for its end."""
        round_ = -(-tick // self._slots)
        if round_ == len(self.by_round):
            self.by_round.append(count)
        else:
            self.by_round[round_] = count


class Population:
    """The live processes: how old the event is at each."""

    def __init__(self, journey: Journey) -> None:
        self._journey = journey
        self._draw = Draw(journey)
        self.codes = nothing(journey.live)
        self.codes[0] = 1  # process 0 makes the event
        self._slots = self._draw.slots() if journey.slots > 1 else None

    def receive(self, coming: Codes) -> None:
        """Copies have come: at each place the code of the youngest, or NEVER."""
        codes = self.codes
        np.minimum(codes, coming, out=codes)
        # Too old to be relayed when it comes first: it is over at once, and must not start again.
        codes[codes == self._journey.hops + 2] = DONE

    def reached(self) -> int:
        return self.codes.size - int(np.count_nonzero(self.codes == NEVER))

    def active(self) -> int:
        """Processes that will relay again."""
        return int(np.count_nonzero(self._relays(self.codes)))

    def relay(self, tick: int, coming: Codes) -> int:
        """Those whose slot it is relay, and age. `coming` is of all live processes."""
        relays = 0
        for start in range(0, self.codes.size, CHUNK):
            codes = self.codes[start : start + CHUNK]
            chosen = self._relays(codes)
            if self._slots is not None and tick > 0:
                chosen &= self._slots[start : start + CHUNK] == tick % self._journey.slots
            places = np.flatnonzero(chosen)
            if not places.size:
                continue
            relays += places.size
            ages = codes[places]
            for code in np.unique(ages):  # in step, there is one
                senders = places[ages == code] + start
                hit = self._draw.targets(tick, senders)
                coming[hit] = np.minimum(coming[hit], code + np.uint8(1))
            ages += np.uint8(1)
            ages[ages > self._journey.hops + 1] = DONE
            codes[places] = ages
        return relays

    def _relays(self, codes: Codes) -> npt.NDArray[np.bool_]:
        return (codes - np.uint8(1)) <= self._journey.hops  # below zero it wraps around


def nothing(size: int) -> Codes:
    return np.full(size, NEVER, np.uint8)


class Draw:
    """All chance of one journey."""

    def __init__(self, journey: Journey) -> None:
        self._journey = journey
        self._lost_below = np.uint64(round(journey.loss * (1 << 27)))
        self._prime = _prime_from(journey.processes - 1)

    def slots(self) -> Codes:
        """In which slot of a round each live process relays."""
        found = np.empty(self._journey.live, np.uint8)
        for start in range(0, found.size, CHUNK):
            ids = np.arange(start, min(found.size, start + CHUNK))
            drawn = _hashed(_key(self._journey.seed, _SLOT), ids)
            found[start:][: ids.size] = _below(drawn, self._journey.slots)
        return found

    def targets(self, tick: int, senders: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Whom the messages of these senders reach: live, and not lost. Some of them twice."""
        journey = self._journey
        drawn = _hashed(_key(journey.seed, _RELAY, tick), senders)
        known = journey.processes - 1 if journey.view_size is None else journey.view_size
        view = None if journey.view_size is None else self._view(tick, senders)
        own = senders.astype(np.uint64)
        arrived = []
        for chosen, bits in _distinct(drawn, min(journey.fan_out, known), known):
            to = chosen if view is None else self._in_view(view, chosen)
            to = to + (to >= own)  # never oneself
            comes = to < journey.live
            if journey.loss:
                comes &= (bits & _LOSS_MASK) >= self._lost_below
            arrived.append(to[comes].view(np.int64))
        return np.concatenate(arrived)

    def _view(self, tick: int, senders: npt.NDArray[np.int64]) -> tuple[Words, Words]:
        """Of each sender's view, the step and the beginning."""
        journey = self._journey
        key = _key(journey.seed, _VIEW)
        seeds = _hashed(key, senders)
        if journey.view_lasts:
            # Not all views are renewed in the same round.
            round_ = np.uint64(tick // journey.slots) + _below(seeds, journey.view_lasts)
            seeds ^= _mixed(round_ // np.uint64(journey.view_lasts) * _GOLDEN + key)
            _mixed(seeds)
        step = _below(_mixed(seeds + _GOLDEN), self._prime - 1) + np.uint64(1)
        return step, _below(_mixed(seeds - _GOLDEN), self._prime)

    def _in_view(self, view: tuple[Words, Words], entry: Words) -> Words:
        """Which of the other processes is this entry of a view."""
        step, begin = view
        prime, others = np.uint64(self._prime), self._journey.processes - 1
        found = (entry * step + begin) % prime
        outside = np.flatnonzero(found >= others)
        while outside.size:  # the prime is a little greater: go on in the same permutation
            found[outside] = (found[outside] * step[outside] + begin[outside]) % prime
            outside = outside[found[outside] >= others]
        return found


def _distinct(drawn: Words, count: int, among: int) -> list[tuple[Words, Words]]:
    """So many distinct numbers below `among` for each word, all sets equally likely, and the bits.

    Floyd's algorithm: of the first j numbers one is drawn; if it is taken, the j-th is not.
    """
    found: list[tuple[Words, Words]] = []
    for place in range(count):
        bits = _mixed(drawn + np.uint64((place + 1) * int(_GOLDEN) & (1 << 64) - 1))
        last = among - count + place
        chosen = _below(bits, last + 1)
        taken = np.zeros(chosen.size, np.bool_)
        for earlier, _ in found:
            taken |= earlier == chosen
        chosen[taken] = last
        found.append((chosen, bits))
    return found


def _below(bits: Words, limit: int) -> Words:
    """A number below the limit, from the upper bits."""
    found: Words = ((bits >> _LOSS_BITS) * np.uint64(limit)) >> _TARGET_BITS
    return found


def _hashed(key: Words, ids: npt.NDArray[np.int64]) -> Words:
    return _mixed(ids.astype(np.uint64) * _GOLDEN + key)


def _key(*parts: int) -> Words:
    """One word for a purpose, as an array: a scalar would complain that it overflows."""
    word = np.zeros(1, np.uint64)
    for part in parts:
        word += _GOLDEN
        word ^= np.uint64(part)
        _mixed(word)
    return word


def _mixed(words: Words) -> Words:
    """The finalizer of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number
    generators, 2014), in place."""
    words ^= words >> np.uint64(30)
    words *= _FIRST
    words ^= words >> np.uint64(27)
    words *= _SECOND
    words ^= words >> np.uint64(31)
    return words


def _prime_from(least: int) -> int:
    number = max(2, least)
    while any(number % divisor == 0 for divisor in range(2, math.isqrt(number) + 1)):
        number += 1
    return number
