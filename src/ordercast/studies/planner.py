"""Settings of a causal cluster from what is wanted of it, and what given settings promise.

Forward, `plan`: from a group and the share of processes that may be missed to every setting.
Backward, `expect`: from settings to what they give. Beside it, `bounds`: what the paper promises
(A. Gidenstam, B. Koldehofe, M. Papatriantafilou, P. Tsigas: *Scalable group communication
supporting configurable levels of consistency*, 2011).

Rules.
 1. Spreading: the smallest number of hops at which no more are missed than wanted (`spread.py`).
 2. Retention, section 5.2: an event is needed while it spreads, while a later one spreads that
    shows its loss, and for time_to_terminate and time_to_recover.
 3. Buffers: the paper bounds their overflow by Chernoff (theorem 5.1). Here it is the tail itself:
    binomial, or Poisson where one creator may make several events a round.
 4. Recovery, lemma 5.2 and theorem 5.2: one process that did not fail must be among those asked.
    Here it must also have the event, still hold it, and neither request nor reply may be lost.
 5. Overload: a message holds the youngest events first. How many are ahead of an event differs
    from process to process, and varies for all of them together with what was created lately.

It does not know membership that changes, partial views, slow processes, or losses that come in
bursts. It is pure, and answers the same question with the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import msgspec

from ordercast.protocol.cluster.advice import doubts
from ordercast.studies.spread import (
    Keep,
    Relay,
    Spread,
    latency,
    missed_by_recursion,
    spread_in_step,
    spread_phased,
)
from ordercast.studies.tails import (
    binomial_at_least,
    poisson_at_least,
    poisson_capped,
    smallest,
)
from ordercast.units import Duration

MOST_PROCESSES = 10_000_000
MOST_EVENTS = 100_000.0  # a round
MOST_HOPS = 100
MOST_ASKED = 99
MOST_KEPT = 1 << 40
FAN_OUTS = (4, 6, 8, 12, 16, 32)  # 4 as in the paper's experiments; more where 4 cannot do it

FULL_MESSAGES = 0.01  # share of messages that may have to leave an event out
FORGOTTEN = 1e-3  # chance that an id is forgotten while its event spreads
OVERFLOW = 1e-6  # chance that a recovery buffer let go of what is asked for
UNANSWERED = 1e-3  # chance that a request for a missing event fails

_STANDARD = NormalDist()
# Five points that stand for a normal variable: (value, weight).
_POINTS = ((-2.857, 0.01126), (-1.3556, 0.22208), (0.0, 0.53332), (1.3556, 0.22208),
           (2.857, 0.01126))  # fmt: skip


class GroupModel(msgspec.Struct, frozen=True, kw_only=True):
    """What is given: the group, its load, and what goes wrong in it."""

    processes: int
    events_per_round: float  # of all together
    loss: float = 0.0  # of one message
    failure: float = 0.0  # p_f: that a process has failed when it is needed
    creators: int = 0  # n of theorem 5.1; 0: every process
    delay: float = 0.0  # of a message, in rounds; little is the worst case
    in_step: bool = False  # whether all rounds begin together
    keep: Keep = "youngest"  # which age counts when copies of an event meet
    eager: bool = True  # an event leaves at once for the first time

    def __post_init__(self) -> None:
        if not 2 <= self.processes <= MOST_PROCESSES:
            raise ValueError(f"processes must be 2 to {MOST_PROCESSES}, not {self.processes}")
        if not 0 < self.events_per_round <= MOST_EVENTS:  # NaN is neither
            raise ValueError(
                f"events per round must be more than 0 and at most {MOST_EVENTS:.0f}, "
                f"not {self.events_per_round}"
            )
        for name, value in (("loss", self.loss), ("failure", self.failure)):
            if not 0 <= value < 1:
                raise ValueError(f"{name} must be a probability from 0 to below 1, not {value}")
        if not 0 <= self.creators <= self.processes:
            raise ValueError(f"creators must be 1 to {self.processes}, not {self.creators}")
        if not 0 <= self.delay <= 10:
            raise ValueError(f"delay must be 0 to 10 rounds, not {self.delay}")

    @property
    def live(self) -> float:
        """Processes that did not fail; the creator is one of them. In small groups, whole."""
        return 1 + float(round((self.processes - 1) * (1 - self.failure)))


class GossipSettings(msgspec.Struct, frozen=True, kw_only=True):
    fan_out: int
    hops: int
    events_per_message: int
    history: int
    recovery_buffer: int
    asked: int  # k: how many are asked for a missing event; 0: its creator
    time_to_terminate: int  # rounds
    time_to_recover: int  # rounds


class Promise(msgspec.Struct, frozen=True, kw_only=True):
    """What settings give, by our model. Shares are of pairs of an event and a live process."""

    missed: float  # processes an event, by gossip alone
    missed_share: float
    missed_by_recursion: float  # processes an event, by the plain recursion without load
    reach_all: float  # share of the events that miss nobody
    missed_after_recovery: float  # share
    recovery_success: float  # of one missing event
    buffer_overflow: float  # chance that an asked process let the event go
    forgotten: float  # chance that an id is forgotten while its event spreads
    latency_mean: float  # rounds
    latency_p99: float  # rounds
    copies: float  # of one event that one process sends
    message_events: float  # events of one message, on average
    full_messages: float  # share of messages without room for all
    retention: int  # rounds for which an event may be asked for


class PaperBounds(msgspec.Struct, frozen=True, kw_only=True):
    """What the paper says about the same settings."""

    retention: int  # T, in rounds
    recovery_buffer: int  # 2npT
    buffer_failure: float  # below (e/4)^(npT)
    history: int  # the same bound, while an event spreads
    asked: int  # 2 n p_f
    asked_failure: float  # below (e/4)^(n p_f)
    asked_is_vacuous: bool  # the bound asks nobody, everybody, or promises next to nothing
    tolerated_failure: float  # theorem 5.2: p_f up to k / 2n


class PlannedSettings(msgspec.Struct, frozen=True):
    settings: GossipSettings
    promise: Promise
    bounds: PaperBounds


# --- forward ---------------------------------------------------------------------------------


def plan(
    group: GroupModel,
    *,
    missed: float = 0.05,
    share: float | None = None,
    fan_out: int | None = None,
) -> PlannedSettings:
    """Settings with which gossip alone misses at most `missed` processes an event.

    `share` says it as a share of the live processes instead. ValueError says what is impossible.
    """
    wanted = missed if share is None else share * group.live
    if not 0 < wanted < math.inf:
        raise ValueError("what may be missed must be more than nothing: gossip has no certainty")
    if fan_out is not None:
        _refuse(group, fan_out, 0)
    choices = FAN_OUTS if fan_out is None else (fan_out,)
    for choice in sorted({min(each, group.processes - 1) for each in choices}):
        found = _fewest_hops(group, choice, wanted)
        if found is None:
            continue
        settings = settings_for(group, choice, *found)
        promise = expect(group, settings)
        while promise.missed > wanted and promise.full_messages > 1e-4:
            more = math.ceil(settings.events_per_message * 1.1)
            settings = msgspec.structs.replace(settings, events_per_message=more)
            promise = expect(group, settings)
        return PlannedSettings(settings, promise, bounds(group, settings))
    raise ValueError(
        f"fan-out {choice} does not bring an event to all but {wanted:g} of "
        f"{group.live:.0f} live processes within {MOST_HOPS} hops"
    )


def _fewest_hops(group: GroupModel, fan_out: int, wanted: float) -> tuple[int, Spread] | None:
    """By doubling and halving: more hops never miss more."""
    found: dict[int, Spread] = {}

    def enough(hops: int) -> bool:
        if hops not in found:
            found[hops] = spread_of(group, fan_out, hops)
        return found[hops].missed <= wanted

    high = 1
    while not enough(min(high, MOST_HOPS)):
        if high >= MOST_HOPS:
            return None
        high *= 2
    low, high = high // 2 if high > 1 else -1, min(high, MOST_HOPS)  # `low` is not enough
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high, found[high]


def settings_for(
    group: GroupModel, fan_out: int, hops: int, spread: Spread | None = None
) -> GossipSettings:
    """The other settings, once fan-out and hops are chosen."""
    _refuse(group, fan_out, hops)
    spread = spread or spread_of(group, fan_out, hops)
    active = group.events_per_round * sum(spread.relays)
    rounds = hops + 1
    retention = 4 * rounds
    buffer = smallest(lambda size: created_at_least(group, retention, size), OVERFLOW)
    asked = 1
    held = 1 - created_at_least(group, retention, buffer)
    most = min(MOST_ASKED, group.processes - 1)
    while asked < most and _unanswered(group, spread, asked, held)[0] > UNANSWERED:
        asked += 1
    return GossipSettings(
        fan_out=fan_out,
        hops=hops,
        events_per_message=smallest(lambda m: poisson_at_least(active, m + 1), FULL_MESSAGES),
        history=smallest(lambda h: created_at_least(group, rounds + 2, h), FORGOTTEN),
        recovery_buffer=buffer,
        asked=asked,
        time_to_terminate=rounds,
        time_to_recover=rounds,
    )


# --- backward --------------------------------------------------------------------------------


def expect(group: GroupModel, settings: GossipSettings) -> Promise:
    """What these settings give in this group. ValueError says what cannot be."""
    _refuse(group, settings.fan_out, settings.hops)
    _refuse_sizes(group, settings)
    relay = _relay(group, settings.fan_out, settings.hops)
    spread, relays = _loaded(group, settings)
    active = group.events_per_round * sum(relays)
    retention = _retention(settings)
    overflow = created_at_least(group, retention, settings.recovery_buffer)
    unanswered, after = _unanswered(group, spread, settings.asked, 1 - overflow)
    mean, p99 = latency(spread)
    message_events = poisson_capped(active, settings.events_per_message)
    return Promise(
        missed=spread.missed,
        missed_share=spread.missed / group.live,
        missed_by_recursion=missed_by_recursion(relay),
        reach_all=spread.reach_all,
        missed_after_recovery=after / group.live,
        recovery_success=1 - unanswered,
        buffer_overflow=overflow,
        forgotten=created_at_least(group, settings.hops + 1, settings.history),
        latency_mean=mean,
        latency_p99=p99,
        copies=settings.fan_out * message_events / group.events_per_round,
        message_events=message_events,
        full_messages=poisson_at_least(active, settings.events_per_message + 1),
        retention=retention,
    )


def bounds(group: GroupModel, settings: GossipSettings) -> PaperBounds:
    """Theorems 5.1 and 5.2 and lemma 5.2, as they are."""
    retention = _retention(settings)
    stored = group.events_per_round * retention
    failed = group.processes * group.failure
    asked = math.ceil(2 * failed)
    asked_failure = (math.e / 4) ** failed
    return PaperBounds(
        retention=retention,
        recovery_buffer=math.ceil(2 * stored),
        buffer_failure=(math.e / 4) ** stored,
        history=math.ceil(2 * group.events_per_round * (settings.hops + 1)),
        asked=asked,
        asked_failure=asked_failure,
        asked_is_vacuous=not 1 <= asked < group.processes or asked_failure > 0.5,
        tolerated_failure=settings.asked / (2 * group.processes),
    )


def _retention(settings: GossipSettings) -> int:
    return 2 * (settings.hops + 1) + settings.time_to_terminate + settings.time_to_recover


def _refuse(group: GroupModel, fan_out: int, hops: int) -> None:
    if not 1 <= fan_out < group.processes:
        raise ValueError(
            f"fan-out must be 1 to {group.processes - 1}, the other processes, not {fan_out}"
        )
    if not 0 <= hops <= MOST_HOPS:
        raise ValueError(f"hops must be 0 to {MOST_HOPS}, not {hops}")


def _refuse_sizes(group: GroupModel, settings: GossipSettings) -> None:
    for name in ("events_per_message", "history", "recovery_buffer"):
        if not 1 <= getattr(settings, name) <= MOST_KEPT:
            raise ValueError(f"{name} must be 1 to {MOST_KEPT}, not {getattr(settings, name)}")
    if not 0 <= settings.asked < group.processes:
        raise ValueError(
            f"asked must be 0 (the creator) to {group.processes - 1}, not {settings.asked}"
        )
    if min(settings.time_to_terminate, settings.time_to_recover) < 0:
        raise ValueError("time_to_terminate and time_to_recover must not be negative")


# --- spreading, under load -------------------------------------------------------------------


def _relay(group: GroupModel, fan_out: int, hops: int, sent: tuple[float, ...] = ()) -> Relay:
    return Relay(
        processes=group.processes,
        live=group.live,
        fan_out=fan_out,
        hops=hops,
        loss=group.loss,
        delay=group.delay,
        keep=group.keep,
        eager=group.eager,
        sent=sent,
    )


def spread_of(group: GroupModel, fan_out: int, hops: int, sent: tuple[float, ...] = ()) -> Spread:
    relay = _relay(group, fan_out, hops, sent)
    return spread_in_step(relay) if group.in_step else spread_phased(relay)


def _loaded(group: GroupModel, settings: GossipSettings) -> tuple[Spread, tuple[float, ...]]:
    """Spreading when messages may be full, and the relays by age on average.

    First the load as it is on average, then the event's journey at five loads around it: what
    was created lately is the same for all processes, so a bad moment is bad everywhere.
    """
    fan_out, hops, room = settings.fan_out, settings.hops, settings.events_per_message
    spread = spread_of(group, fan_out, hops)
    relays = spread.relays
    load = group.events_per_round
    if poisson_at_least(load * sum(relays), room + 1) < 1e-3:
        return spread, relays
    for _ in range(3):  # what is left out is not spread, which makes room
        spread = spread_of(group, fan_out, hops, sent_by_age(relays, load, room, None))
        relays = spread.relays
    if load * sum(relays) < 5:  # too few for a normal variable to stand for them
        return spread, relays
    parts = []
    for deviation, weight in _POINTS:
        sent = sent_by_age(relays, load, room, deviation)
        parts.append((weight, spread_of(group, fan_out, hops, sent)))
    return _mixed(parts), relays


def sent_by_age(
    relays: Sequence[float], events_per_round: float, room: int, deviation: float | None
) -> tuple[float, ...]:
    """By age: the chance that an event is among the `room` youngest of a process.

    With `deviation`, at a moment when so many standard deviations more events were created.
    """
    chances = []
    mean = shared = 0.0  # of the events ahead; and what of their variance all processes share
    for each in relays:
        own, own_shared = events_per_round * each, events_per_round * min(1.0, each) ** 2
        chance = 0.0
        for part in (1 / 6, 1 / 2, 5 / 6):  # of its equals, those that chance puts ahead
            ahead, common = mean + part * own, shared + part * own_shared
            if deviation is None:
                chance += (1 - poisson_at_least(ahead, room)) / 3
                continue
            apart = math.sqrt(max(0.05, ahead - common))
            ahead += deviation * math.sqrt(common)
            chance += _STANDARD.cdf((room - 0.5 - ahead) / apart) / 3
        chances.append(chance)
        mean, shared = mean + own, shared + own_shared
    return tuple(chances)


def _mixed(parts: list[tuple[float, Spread]]) -> Spread:
    total = sum(weight for weight, _ in parts)
    relays = [0.0] * len(parts[0][1].relays)
    ends: list[tuple[float, float]] = []
    arrivals: list[tuple[float, float, float]] = []
    for weight, spread in parts:
        share = weight / total
        relays = [sum_ + share * each for sum_, each in zip(relays, spread.relays, strict=True)]
        ends += [(share * chance, missed) for chance, missed in spread.ends]
        arrivals += [(at, wide, share * each) for at, wide, each in spread.arrivals]
    reach_all = sum(weight / total * spread.reach_all for weight, spread in parts)
    return Spread(tuple(relays), tuple(ends), reach_all, tuple(sorted(arrivals)))


# --- recovery --------------------------------------------------------------------------------


def _unanswered(group: GroupModel, spread: Spread, asked: int, held: float) -> tuple[float, float]:
    """The chance that a request fails, and the processes an event misses in spite of it.

    An event that reached few is missed by many, and few can help: so the sum goes over its ends.
    """
    works = (1 - group.failure) * (1 - group.loss) ** 2 * held
    others = max(group.live - 1, 1e-9)
    wanted = after = 0.0
    for chance, missed in spread.ends:
        # Among the others, if one misses it: the creator surely has it, the rest by chance.
        having = 1.0 if asked == 0 else min(1.0, max(0.0, (group.live - missed) / others))
        wanted += chance * missed
        after += chance * missed * (1 - works * having) ** max(1, asked)
    return (after / wanted if wanted > 1e-300 else 1 - works), after


# --- chance ----------------------------------------------------------------------------------


def created_at_least(group: GroupModel, rounds: int, count: int) -> float:
    """The chance that `count` events or more are created in so many rounds."""
    creators = group.creators or group.processes
    chance = group.events_per_round / creators
    if chance >= 1:  # several events of one creator in a round: no longer the paper's model
        return poisson_at_least(group.events_per_round * rounds, count)
    return binomial_at_least(creators * rounds, chance, count)


def doubts_about(group: GroupModel, settings: GossipSettings) -> list[str]:
    """What cannot work in such settings, a sentence each: as at the start of a group."""
    return doubts(
        processes=group.processes,
        fan_out=settings.fan_out,
        hops=settings.hops,
        events_per_message=settings.events_per_message,
        history=settings.history,
        events_per_round=group.events_per_round,
        recovery_buffer=settings.recovery_buffer,
        asked=settings.asked,
    )


def options_text(settings: GossipSettings, length: Duration) -> str:
    """The options of a scenario file."""
    asked = f"any-{settings.asked}" if settings.asked else "originator"
    return "\n".join(
        [
            '# for family = "causal"; gossip has no recovery, and so none of its keys',
            "[options]",
            f'round = "{length}"',
            f"fan_out = {settings.fan_out}",
            f"hops = {settings.hops}",
            f"events_per_message = {settings.events_per_message}",
            f"history = {settings.history}",
            f"recovery_buffer = {settings.recovery_buffer}",
            f'recovery = "{asked}"',
            f'time_to_terminate = "{Duration(settings.time_to_terminate * length)}"',
            f'time_to_recover = "{Duration(settings.time_to_recover * length)}"',
        ]
    )
