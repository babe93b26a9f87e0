"""How far one event of a gossip gets, as numbers: the model under `planner.py`.

The gossip is that of A. Gidenstam, B. Koldehofe, M. Papatriantafilou, P. Tsigas: *Scalable group
communication supporting configurable levels of consistency*, 2011, section 6: in every round each
process that has the event sends it to `fan_out` others, until the event is older than `hops`.

Two models, because it matters whether rounds begin together:

* In step, all copies have one age. How many processes have the event is a Markov chain. While
  they are few it is followed exactly; later, by atoms with the right mean and variance.
* Phased, each process begins its rounds when it likes. A chain of processes whose rounds begin
  one after the other carries an event many hops in one round; it is old at once, and when the
  older age is kept it stops early everywhere. This is followed in expectation, by phase and age.

Both rest on one fact: a process is missed when every relay misses it, so what is missed depends
on the number of relays alone. Nothing here is random, and nothing knows time or a network.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import msgspec

Keep = Literal["oldest", "youngest"]

EXACT = 24  # up to so many holders, or in groups up to ALL_EXACT, every number is followed
ALL_EXACT = 40
CELLS = 48  # beyond, so many atoms are kept
PHASES = (8, 16)  # a round in so many slots
BEYOND = 0.5  # of the difference between the two, added: chosen by simulation, docs/planner.md
SCARCE = 0.75  # an age that fewer processes than this are expected to have does not spread
GONE = 0.01  # so few processes that are expected to relay an event are none
LONGEST = 400  # rounds after which the phased model stops, whatever is left


class Relay(msgspec.Struct, frozen=True, kw_only=True):
    """One event's journey: what it depends on."""

    processes: int  # those that senders choose from, and the sender
    live: float  # those of them that take part
    fan_out: int
    hops: int
    loss: float
    delay: float = 0.0  # of a message, in rounds; the phased model alone cares
    keep: Keep = "oldest"  # which age survives when two copies meet
    eager: bool = True  # the first relay comes with the event, not with the next round
    sent: tuple[float, ...] = ()  # by age: chance that it is among the events of a message

    @property
    def contact(self) -> float:
        """The chance that one sender's messages of one round reach a given process."""
        return self.fan_out * (1 - self.loss) / (self.processes - 1)

    def sent_at(self, age: int) -> float:
        return self.sent[age] if age < len(self.sent) else 1.0

    def force(self, age: int) -> float:
        """What one relay at this age takes off the logarithm of the chance to be missed."""
        return -math.log(max(1e-9, 1 - self.sent_at(age) * self.contact))


class Spread(msgspec.Struct, frozen=True):
    """What came of it. Shares are of the live processes."""

    relays: tuple[float, ...]  # by age: relays a process makes
    ends: tuple[tuple[float, float], ...]  # (chance, processes missed)
    reach_all: float  # chance that nobody is missed
    # (from, within how many rounds, share that gets it), in rounds after the event was made
    arrivals: tuple[tuple[float, float, float], ...]

    @property
    def missed(self) -> float:
        return sum(chance * missed for chance, missed in self.ends)


# --- rounds in step --------------------------------------------------------------------------


def spread_in_step(relay: Relay) -> Spread:
    """Coverage round by round. `ends` keeps its distribution: bad starts end badly."""
    others = max(relay.live - 1, 1e-9)
    atoms = [(1.0, 1.0)]  # (holders, chance)
    relays, arrivals = [], []
    hits = _Hits(relay)
    before, reach_all = 1.0, 0.0
    for age in range(relay.hops + 1):
        relays.append(before / relay.live)
        sent = relay.sent_at(age)
        last = age == relay.hops
        if last:
            reach_all = math.fsum(chance * hits.all_reached(n, sent) for n, chance in atoms)
            atoms = [(n + hits.mean(n, sent), chance) for n, chance in atoms]
        else:
            atoms = _merged(
                [(n + new, chance * p) for n, chance in atoms for new, p in hits.after(n, sent)]
            )
        mean = math.fsum(n * chance for n, chance in atoms)
        share = (mean - before) / others
        if relay.eager:
            arrivals.append((max(0.0, age - 1.0), float(age > 0), share))
        else:
            arrivals.append((float(age), 1.0, share))
        before = mean
    ends = tuple((chance, max(0.0, relay.live - n)) for n, chance in atoms)
    return Spread(tuple(relays), ends, min(1.0, reach_all), tuple(arrivals))


class _Hits:
    """How many live processes without the event get it when `n` holders relay it once."""

    def __init__(self, relay: Relay) -> None:
        self.relay = relay
        self._one: dict[int, list[float]] = {}
        self._known: dict[tuple[int, float], list[float]] = {}

    def mean(self, n: float, sent: float) -> float:
        missed = math.pow(1 - sent * self.relay.contact, n)
        return max(0.0, self.relay.live - n) * (1 - missed)

    def all_reached(self, n: float, sent: float) -> float:
        if self._is_exact(n):
            chances = self._exactly(int(n), sent)
            without = round(self.relay.live) - int(n)
            return chances[without] if without < len(chances) else 0.0
        each = math.pow(1 - sent * self.relay.contact, n)
        return math.pow(1 - each, max(0.0, self.relay.live - n))

    def after(self, n: float, sent: float) -> list[tuple[float, float]]:
        """(newly reached, chance)."""
        if self._is_exact(n):
            return [(float(k), p) for k, p in enumerate(self._exactly(int(n), sent)) if p > 1e-12]
        mean = self.mean(n, sent)
        spread = math.sqrt(3 * self._variance(n, sent))
        most = max(0.0, self.relay.live - n)
        low, high = max(0.0, mean - spread), min(most, mean + spread)
        return [(low, 1 / 6), (mean, 2 / 3), (high, 1 / 6)]

    def _is_exact(self, n: float) -> bool:
        whole = n == int(n) and self.relay.live == int(self.relay.live)
        return whole and (n <= EXACT or self.relay.live <= ALL_EXACT)

    def _variance(self, n: float, sent: float) -> float:
        """A sender's targets are distinct, so what two processes get is not independent."""
        relay, without = self.relay, self.relay.live - n
        one = math.pow(1 - sent * relay.contact, n)  # misses this one
        arrive = 1 - relay.loss
        pairs = relay.fan_out * (relay.fan_out - 1) * arrive * arrive
        pairs /= (relay.processes - 1) * max(1, relay.processes - 2)
        both = math.pow(max(0.0, 1 - sent * (2 * relay.contact - pairs)), n)  # misses these two
        return max(0.0, without * one + without * (without - 1) * both - (without * one) ** 2)

    def _exactly(self, holders: int, sent: float) -> list[float]:
        """Sender after sender: how many targets are new depends on how many are left."""
        known = self._known.get((holders, sent))
        if known is not None:
            return known
        without = round(self.relay.live) - holders
        chances = [1.0]
        for _ in range(holders):
            longer = [0.0] * min(len(chances) + self.relay.fan_out, without + 1)
            for hit, chance in enumerate(chances):
                if chance < 1e-14:
                    continue
                longer[hit] += chance * (1 - sent)
                for new, p in enumerate(self._of_one(without - hit)):
                    if p:
                        longer[hit + new] += chance * sent * p
            chances = longer
        self._known[holders, sent] = chances
        return chances

    def _of_one(self, without: int) -> list[float]:
        """How many of `without` processes get one sender's messages: distinct targets, thinned."""
        known = self._one.get(without)
        if known is None:
            relay = self.relay
            others, count = relay.processes - 1, relay.fan_out
            known = [0.0] * (min(count, without) + 1)
            for drawn in range(len(known)):
                ways = math.comb(without, drawn) * math.comb(others - without, count - drawn)
                p = ways / math.comb(others, count)
                for lost in range(drawn + 1):
                    thinned = math.comb(drawn, lost) * relay.loss**lost
                    known[drawn - lost] += p * thinned * (1 - relay.loss) ** (drawn - lost)
            self._one[without] = known
        return known


def _merged(atoms: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Few atoms with the same mean. Small numbers of holders stay apart: they decide the rest."""
    exact: dict[float, float] = {}
    rest: list[tuple[float, float]] = []
    for n, chance in atoms:
        if n == int(n) and n <= ALL_EXACT:
            exact[n] = exact.get(n, 0.0) + chance
        else:
            rest.append((n, chance))
    merged = sorted(exact.items())
    if rest:
        rest.sort()
        low, width = rest[0][0], (rest[-1][0] - rest[0][0]) / CELLS or 1.0
        cells: dict[int, tuple[float, float]] = {}
        for n, chance in rest:
            cell = int((n - low) / width)
            weight, total = cells.get(cell, (0.0, 0.0))
            cells[cell] = (weight + chance, total + n * chance)
        merged += [(total / weight, weight) for weight, total in cells.values() if weight > 0]
    return merged


# --- phased rounds ---------------------------------------------------------------------------


def spread_phased(relay: Relay) -> Spread:
    """Two runs, with rounds in few and in more slots: within a slot nobody hears anybody, so
    both are somewhat hopeful, and the difference says by how much."""
    coarse, fine = (_run_of_slots(relay, slots) for slots in PHASES)
    relays = tuple(
        max(0.0, b + BEYOND * (b - a)) for a, b in zip(coarse.relays, fine.relays, strict=True)
    )
    others = max(relay.live - 1, 1e-9)
    each = math.exp(-relay.live * sum(relay.force(age) * n for age, n in enumerate(relays)))
    ends = ((1.0, others * each),)
    return Spread(relays, ends, math.pow(1 - each, others), fine.arrivals)


def _run_of_slots(relay: Relay, slots: int) -> Spread:
    group = _Phases(relay, slots)
    arrivals: list[tuple[float, float, float]] = []
    wait = 0.0 if relay.eager else 1.0
    underway: list[list[float]] = [[] for _ in range(round(relay.delay * slots))]
    for step in range(LONGEST * slots):
        underway.append(group.relay(step % slots))
        rates = underway.pop(0)
        new = group.receive(rates) if rates else 0.0
        if new:
            arrivals.append((step / slots, wait, new / max(relay.live - 1, 1e-9)))
        if group.count() < GONE and not any(map(any, underway)):
            break
    relays = tuple(count / relay.live for count in group.relays)
    return Spread(relays, (), 0.0, tuple(arrivals))


class _Phases:
    """Expected numbers of processes, by the slot in which their round begins and by age."""

    def __init__(self, relay: Relay, slots: int) -> None:
        self.keep = relay.keep
        self.ages = relay.hops + 1
        self.forces = [relay.force(age) for age in range(self.ages)]
        self.without = [(relay.live - 1) / slots] * slots
        self.holders = [[0.0] * self.ages for _ in range(slots)]
        self.holders[0][0] = 1.0  # the creator
        self.relays = [0.0] * self.ages
        self.oldest = 0  # the highest age that somebody has had

    def count(self) -> float:
        """Processes that will relay again."""
        return sum(map(sum, self.holders))

    def relay(self, slot: int) -> list[float]:
        """Those whose round begins relay and age. By age, the rate at which a process is hit."""
        self.oldest = max(self.oldest, self._oldest())
        rates = [0.0] * (self.ages + 1)
        row = self.holders[slot]
        for age, count in enumerate(row):
            self.relays[age] += count
            rates[min(age, self.oldest) + 1] += count * self.forces[age]
        self.holders[slot] = [0.0, *row[:-1]]  # older than `hops` is no longer relayed
        return rates

    def _oldest(self) -> int:
        """The highest age that somebody has. Less than one process expected is nobody."""
        count = 0.0
        for age in range(self.ages - 1, 0, -1):
            count += sum(row[age] for row in self.holders)
            if count >= SCARCE:
                return age
        return 0

    def receive(self, rates: Sequence[float]) -> float:
        """Copies reach everybody at these rates. Returns how many processes are new."""
        if not any(rates):
            return 0.0
        order = range(self.ages, -1, -1) if self.keep == "oldest" else range(self.ages + 1)
        stay = [0.0] * (self.ages + 1)  # by age: the chance that no better age comes
        come = [0.0] * (self.ages + 1)  # and that this one comes, and no better
        better = 0.0
        for age in order:
            stay[age] = math.exp(-better)
            come[age] = stay[age] * -math.expm1(-rates[age])
            better += rates[age]
        none = math.exp(-better)
        new = 0.0
        for slot, row in enumerate(self.holders):
            without = self.without[slot]
            new += without * (1 - none)
            self.without[slot] = without * none
            out = [0.0] * (self.ages + 1)
            row.append(0.0)  # those that are older than `hops` are not followed
            worse = without + sum(row)
            for age in order:
                worse -= row[age]
                out[age] = row[age] * stay[age] + max(0.0, worse) * come[age]
            out.pop()
            self.holders[slot] = out
        return new


# --- how long, and the plain recursion -------------------------------------------------------


def latency(spread: Spread) -> tuple[float, float]:
    """Mean and 99th percentile, in rounds, of how long an event takes to those that it reaches."""
    reached = math.fsum(share for _, _, share in spread.arrivals)
    if reached <= 0:
        return math.nan, math.nan
    mean = math.fsum((at + wide / 2) * share for at, wide, share in spread.arrivals) / reached
    low, high = 0.0, spread.arrivals[-1][0] + 1
    for _ in range(30):
        middle = (low + high) / 2
        by_then = math.fsum(
            share * min(1.0, max(0.0, middle - at) / max(wide, 1e-9))
            for at, wide, share in spread.arrivals
        )
        low, high = (middle, high) if by_then < 0.99 * reached else (low, middle)
    return mean, high


def missed_by_recursion(relay: Relay) -> float:
    """x' = 1 - (1 - x) exp(-fan_out x (1 - loss)): what is often used, and too hopeful."""
    share = 1 / relay.live
    force = relay.fan_out * (1 - relay.loss) * relay.live / relay.processes
    for _ in range(relay.hops + 1):
        share = 1 - (1 - share) * math.exp(-force * share)
    return relay.live * (1 - share)
