"""What the replica set rests on, taken away: with each of these a ticket may have two owners."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.protocol.tickets import contenders

from ordercast.protocol.tickets import lease_replica, leased, owner, reconfiguration, register
from ordercast.protocol.tickets.packets import TicketState
from ordercast.types import NodeId


def wait_as_long_as_a_lease(patch: pytest.MonkeyPatch) -> None:
    """D instead of W: a slow owner's lease is not over when a fast lease replica says so."""
    patch.setattr(leased.Rules, "wait", property(lambda rules: rules.lease))


def serve_at_once_after_an_install(patch: pytest.MonkeyPatch) -> None:
    """What the old replica set granted is not waited for."""
    begin = lease_replica.LeaseReplica._begin

    def impatient(self: Any, step: Any, next_: Any) -> None:
        begin(self, step, next_)
        for entry in self.register.entries:
            entry.touched = -(10**12)

    patch.setattr(lease_replica.LeaseReplica, "_begin", impatient)


def ignore_votes(patch: pytest.MonkeyPatch) -> None:
    """A reconfiguration leader replaces a replica set that may have been decided."""
    take = reconfiguration.ReconfigurationLeader.on_sealed

    def forgetful(self: Any, step: Any, sealed: Any) -> None:
        take(self, step, msgspec.structs.replace(sealed, vote=None))

    patch.setattr(reconfiguration.ReconfigurationLeader, "on_sealed", forgetful)


def merge_by_the_highest_epoch(patch: pytest.MonkeyPatch) -> None:
    """The owner of the highest epoch may have no majority, and another one has."""

    def hasty(found: list[tuple[TicketState, bool]]) -> TicketState:
        top = max((held for held, _ in found), key=lambda held: held.epoch)
        return msgspec.structs.replace(top, mode="held" if top.owner else "free")

    patch.setattr(register, "_merged", hasty)


def merge_without_raising_ties(patch: pytest.MonkeyPatch) -> None:
    """Two had one epoch, each from some lease replicas: the one that is left goes on with it."""
    merged = register._merged

    def level(found: list[tuple[TicketState, bool]]) -> TicketState:
        top = max(held.epoch for held, _ in found)
        return msgspec.structs.replace(merged(found), epoch=top)

    patch.setattr(register, "_merged", level)


def grant_although_sealed(patch: pytest.MonkeyPatch) -> None:
    """A lease replica goes on granting what no successor will hear of."""
    patch.setattr(lease_replica.LeaseReplica, "sealed", property(lambda self: False))


def stay_the_same_owner_after_a_restart(patch: pytest.MonkeyPatch) -> None:
    """The name counts, and not the incarnation."""
    patch.setattr(contenders.Contender, "owner_of", lambda self, who: NodeId(who.name))


def number_claims_from_one_in_every_incarnation(patch: pytest.MonkeyPatch) -> None:
    """What an earlier incarnation was granted passes for an answer to this one."""

    def forgetful(self: Any) -> int:
        self._claims += 1
        return int(self._claims)

    patch.setattr(owner.Owner, "_next_nonce", forgetful)
