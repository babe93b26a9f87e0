"""`ordercast plan`: settings for a group that gossips, and what they promise.

Computes the settings of a group from what its members may miss, as a table for a scenario; or, if
settings are given, what they promise.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import msgspec
from rich import box
from rich.table import Table

from ordercast.cli import plan_feed, screen
from ordercast.errors import UsageError
from ordercast.studies import planner
from ordercast.studies.planner import (
    GossipSettings,
    GroupModel,
    PaperBounds,
    PlannedSettings,
    Promise,
)
from ordercast.units import Duration

GIVEN = ("hops", "events_per_message", "history", "recovery_buffer", "asked")
"""Settings that turn the question around when they are given."""
MOST_MEASURED = 10_000
SLOTS = 16
"""Slots of a round, out of step: with fewer, less is missed than by members (docs/rounds.md)."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    number = parser.add_argument
    number("--processes", type=int, metavar="N", help="in the group")
    number("--events-per-round", type=float, metavar="N", help="of all together")
    number("--loss", type=float, default=0.0, metavar="P", help="chance that a message is lost")
    number("--failure", type=float, default=0.0, metavar="P", help="chance that a process failed")
    number("--missed", metavar="N", help="processes an event may miss, or a share such as 0.1%%")
    number("--creators", type=int, metavar="N", help="that make events (all)")
    number("--round", default="100ms", metavar="TIME", help="length of a round (100ms)")
    number("--delay", default="0ms", metavar="TIME", help="of a message; little is worst (0ms)")
    number("--in-step", action="store_true", help="all rounds begin together")
    number(
        "--keep", choices=["oldest", "youngest"], default="youngest", help="age when copies meet"
    )
    number("--fan-out", type=int, metavar="F", help="processes that a round's message goes to")
    number("--check", metavar="F,H,M", help="what this fan-out, hops and events a message give")
    for name in GIVEN:
        option = f"--{name.replace('_', '-')}"
        number(option, type=int, metavar="N", help="what this setting gives")
    number("--measure", type=int, metavar="RUNS", help="also simulate how this many events spread")
    number("--view-size", type=int, metavar="N", help="with --measure: processes that each knows")
    number("--json", action="store_true", help="one JSON object")
    others = parser.add_subparsers(title="other plans", metavar="feed")
    title, _, description = (plan_feed.__doc__ or "").partition("\n\n")
    words = title.partition(": ")[2].rstrip(".")
    feed = others.add_parser("feed", help=words, description=description)
    feed.set_defaults(run=plan_feed.run)
    plan_feed.add_arguments(feed)


def run(arguments: argparse.Namespace) -> int:
    for option in ("processes", "events_per_round"):
        if getattr(arguments, option) is None:
            needed = f"--{option.replace('_', '-')}"
            raise UsageError(f"plan needs {needed} for gossip; plan feed plans a tree")
    try:
        length = _duration("--round", arguments.round)
        if not length:
            raise ValueError("--round must be longer than nothing")
        group = _group(arguments, length)
        plan = _answer(group, arguments)
        rounds = _measured(group, plan.settings, arguments)
    except ValueError as error:
        raise UsageError(str(error)) from error
    if arguments.json:
        fields = {
            "group": group,
            "settings": plan.settings,
            "promise": plan.promise,
            "paper": plan.bounds,
            "advice": planner.doubts_about(group, plan.settings),
        }
        if rounds:
            fields["rounds"] = rounds
        screen.json_line(fields)
        return 0
    _print(group, plan, length, rounds)
    return 0


def _duration(option: str, text: str) -> Duration:
    try:
        return Duration.parse(text)
    except ValueError as error:
        raise ValueError(f"{option}: {error}") from error


def _group(arguments: argparse.Namespace, length: Duration) -> GroupModel:
    if arguments.creators == 0:
        raise ValueError("--creators must be at least 1; without it all processes make events")
    return GroupModel(
        processes=arguments.processes,
        events_per_round=arguments.events_per_round,
        loss=arguments.loss,
        failure=arguments.failure,
        creators=arguments.creators or 0,
        delay=_duration("--delay", arguments.delay) / length,
        in_step=arguments.in_step,
        keep=arguments.keep,
    )


def _answer(group: GroupModel, arguments: argparse.Namespace) -> PlannedSettings:
    given = {name: value for name in GIVEN if (value := getattr(arguments, name)) is not None}
    fan_out: int | None = arguments.fan_out
    if arguments.check is not None:
        fan_out, given["hops"], given["events_per_message"] = _three(arguments.check)
    missed, share = _wanted(arguments.missed)
    if "hops" not in given:
        plan = planner.plan(group, missed=missed, share=share, fan_out=fan_out)
        if not given:
            return plan
        settings = plan.settings
    else:
        if fan_out is None:
            fan_out = min(planner.FAN_OUTS[0], group.processes - 1)
        settings = planner.settings_for(group, fan_out, given["hops"])
    settings = msgspec.structs.replace(settings, **given)
    return PlannedSettings(
        settings, planner.expect(group, settings), planner.bounds(group, settings)
    )


def _three(text: str) -> tuple[int, int, int]:
    try:
        fan_out, hops, events = (int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(
            f"--check wants fan-out, hops and events a message, such as 4,5,20, not {text!r}"
        ) from None
    return fan_out, hops, events


def _wanted(text: str | None) -> tuple[float, float | None]:
    """Processes an event, or a share of them."""
    if text is None:
        return 0.05, None
    try:
        number = float(text.removesuffix("%"))
    except ValueError:
        raise ValueError(
            f"--missed wants a number, or a share such as 0.1%, not {text!r}"
        ) from None
    return (0.0, number / 100) if text.endswith("%") else (number, None)


# --- counted out -----------------------------------------------------------------------------


class Round(msgspec.Struct, frozen=True):
    """How many have an event so many rounds after it was made: by the model, and counted."""

    round: int
    model: float
    measured: float


def _measured(
    group: GroupModel, settings: GossipSettings, arguments: argparse.Namespace
) -> list[Round] | None:
    runs: int | None = arguments.measure
    if runs is None:
        if arguments.view_size is not None:
            raise ValueError("--view-size goes with --measure")
        return None
    if not 1 <= runs <= MOST_MEASURED:
        raise ValueError(f"--measure wants 1 to {MOST_MEASURED} runs, not {runs}")
    if group.keep != "youngest":
        raise ValueError("--measure counts gossip that keeps the youngest age")
    if group.delay > 0.25 and not group.in_step:
        raise ValueError("--measure counts messages that take up to a quarter of a round")
    try:
        from ordercast.studies.rounds import Journey, reach
    except ModuleNotFoundError as error:
        raise UsageError(f'--measure needs {error.name}: pip install "ordercast[spark]"') from error
    # A message takes half a slot, on average.
    slots = 1 if group.in_step else min(SLOTS, round(0.5 / max(group.delay, 1e-9)))
    curves = [
        reach(
            Journey(
                processes=group.processes,
                fan_out=settings.fan_out,
                hops=settings.hops,
                loss=group.loss,
                crash=group.failure,
                view_size=arguments.view_size,
                slots=slots,
                seed=seed,
            )
        )
        for seed in range(1, runs + 1)
    ]
    model = _model(group, settings)
    rounds = range(max(map(len, curves)))
    return [
        Round(at, model(at), sum(curve[min(at, len(curve) - 1)] for curve in curves) / runs)
        for at in rounds
    ]


def _model(group: GroupModel, settings: GossipSettings) -> Callable[[int], float]:
    """How many have the event by a round, as the planner follows it, without load."""
    arrivals = planner.spread_of(group, settings.fan_out, settings.hops).arrivals
    if group.in_step:
        shares = [share for _, _, share in arrivals]
        return lambda at: 1 + (group.live - 1) * sum(shares[:at])
    return lambda at: 1 + (group.live - 1) * sum(share for when, _, share in arrivals if when < at)


# --- for people ------------------------------------------------------------------------------


def _print(
    group: GroupModel, plan: PlannedSettings, length: Duration, rounds: list[Round] | None
) -> None:
    """A table for a scenario. What is not for the file is a comment, unless a person reads it."""
    out = screen.stdout()
    out.print(planner.options_text(plan.settings, length), markup=False)
    with out.capture() as capture:
        out.print(_promises(group, plan, length), soft_wrap=False)
        if rounds:
            out.print(_curve(group, rounds), soft_wrap=False)
    prefix = "" if sys.stdout.isatty() else "# "
    lines = [
        "",
        *capture.get().strip("\n").splitlines(),
        "",
        *planner.doubts_about(group, plan.settings),
    ]
    while lines and not lines[-1].strip():
        lines.pop()
    print("\n".join(f"{prefix}{line}".rstrip() if line.strip() else "" for line in lines))


def _promises(group: GroupModel, plan: PlannedSettings, length: Duration) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("what it promises", no_wrap=True)
    table.add_column("model")
    table.add_column("paper")
    for row in _rows(group, plan, length):
        table.add_row(*row)
    return table


def _curve(group: GroupModel, rounds: list[Round]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("rounds after it was made", "model", "counted", "share"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in rounds:
        counted = f"{each.measured:,.1f}"
        share = _share(each.measured / group.live)
        table.add_row(str(each.round), f"{each.model:,.1f}", counted, share)
    return table


def _rows(group: GroupModel, plan: PlannedSettings, length: Duration) -> list[tuple[str, str, str]]:
    promise, paper, settings = plan.promise, plan.bounds, plan.settings
    answered = 1 - promise.recovery_success
    buffer = f"{settings.recovery_buffer} events, overflow {_chance(promise.buffer_overflow)}"
    bound = f"{paper.recovery_buffer} events, overflow below {_chance(paper.buffer_failure)}"
    room = f"{promise.message_events:.1f} of {settings.events_per_message}"
    return [
        (
            "missed by gossip alone",
            f"{_number(promise.missed)} processes an event, {_share(promise.missed_share)}",
            "few, with high probability",
        ),
        ("events that miss nobody", _share(promise.reach_all), ""),
        ("missed after recovery", _share(promise.missed_after_recovery), ""),
        ("latency", _latency(promise, length), "grows with the logarithm of the group"),
        ("events in a message", f"{room}; {_share(promise.full_messages)} are full", ""),
        ("copies that a process sends", f"{promise.copies:.1f} of an event", ""),
        ("an event may be asked for", f"{promise.retention} rounds", f"{paper.retention} rounds"),
        ("recovery buffer", buffer, bound),
        (
            "ids remembered",
            f"{settings.history}, one forgotten {_chance(promise.forgotten)}",
            f"{paper.history}",
        ),
        ("asked for what is missing", f"{_asked(settings)}, fails {_chance(answered)}",
         _asked_by_paper(paper)),
        ("failures it is meant for", _share(group.failure), _tolerated(settings, paper)),
    ]  # fmt: skip


def _asked(settings: GossipSettings) -> str:
    return f"{settings.asked} processes" if settings.asked else "the originator"


def _asked_by_paper(paper: PaperBounds) -> str:
    told = f"lemma 5.2: {paper.asked}, fails below {_chance(paper.asked_failure)}"
    return f"{told}: says nothing here" if paper.asked_is_vacuous else told


def _tolerated(settings: GossipSettings, paper: PaperBounds) -> str:
    if not settings.asked:
        return ""
    return f"theorem 5.2: up to {_share(paper.tolerated_failure)}"


def _latency(promise: Promise, length: Duration) -> str:
    def written(rounds: float) -> str:
        return f"{rounds:.1f} rounds ({rounds * length / 1e6:.3g}ms)"

    if promise.latency_mean != promise.latency_mean:  # nobody is reached
        return "nobody is reached"
    return f"mean {written(promise.latency_mean)}, 99 % {written(promise.latency_p99)}"


def _number(value: float) -> str:
    return f"{value:.3g}" if value >= 1e-9 else "0"


def _share(value: float) -> str:
    percent = 100 * value
    if 99 < percent < 100:
        return f"{min(percent, 99.9999):.6g} %"
    return f"{percent:.3g} %" if percent >= 1e-9 else "0 %"


def _chance(value: float) -> str:
    return f"{value:.2g}" if value >= 1e-99 else "1e-99"
