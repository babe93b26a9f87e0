"""Causal clusters: few updaters, any number of receivers, order over gossip.

options.py        what can be set, with defaults that work
packets.py        what members say to each other, and how it becomes short on the wire
gossip.py         spreading events: rounds, ages, termination
sampler.py        which members gossip goes to, and what they send each other for it
partial_view.py   knowing a bounded part of the members
lpbcast.py        a partial view that travels with the gossip
cyclon.py         a partial view that is shuffled
causality.py      optimistic causal order: what waits for what, and what is skipped
recovery.py       what is buffered for others, what was asked for, and who is asked
presence.py       who is there, as far as gossip tells
digests.py        comparing clocks, so that the last events are not missed
beginning.py      who may begin a cluster
choosing.py       which one begins it, where several may
joining.py        where a newcomer begins, and how often newcomers are answered
updaters.py       which members may update a cluster, and which one begins it
ownership.py      who owns which ticket: the strategy of a member, and tickets that are fixed
running.py        a member that knows where the cluster is: what it waits for
moving.py         tickets that change hands: our lease, and what is known of others'
member.py         the machine of plain gossip, and what both have in common
causal_member.py  the machine of a causal cluster: the rules that join the parts
words.py          how clusters read in interaction files
mutants.py        the same with planted bugs
advice.py         which settings cannot work
"""

from ordercast.kernel.family import BASIC_LAWS, Family, Permit, Promises, StateTransfer
from ordercast.protocol.cluster import causal_member, member
from ordercast.protocol.cluster.member import advice
from ordercast.protocol.cluster.mutants import OF_CAUSAL, OF_GOSSIP
from ordercast.protocol.cluster.options import Causal, CausalOptions, GossipOptions
from ordercast.protocol.cluster.options import Gossip as GossipLevel
from ordercast.protocol.cluster.packets import (
    Ask,
    ClusterMembership,
    Digest,
    Gossip,
    Membership,
    PromiseRecord,
    Recover,
    ThinRecovered,
    ThinUpdates,
    Welcome,
)
from ordercast.protocol.cluster.updaters import founder_of, may_send, objection, tickets_move
from ordercast.protocol.cluster.words import CAUSAL_WORDS, GOSSIP_WORDS
from ordercast.protocol.tickets.packets import PACKETS as TICKET_PACKETS
from ordercast.protocol.tickets.packets import RECORDS

_SOURCE = (
    "Gidenstam, Koldehofe, Papatriantafilou, Tsigas: Scalable group communication supporting "
    "configurable levels of consistency; and the same: Lightweight causal cluster consistency"
)

_OWN = """
    fan_out events_per_message history view_size transport links eager window_size
    recovery recovery_buffer recovery_size replace waiting waiting_size
    time_to_terminate time_to_recover join_wait digests
""".split()

GOSSIP = Family(
    "gossip",
    GossipOptions,
    (Gossip, Membership),
    member.build,
    level=GossipLevel,
    promises=Promises(BASIC_LAWS, source=_SOURCE),
    words=GOSSIP_WORDS,
    mutants=OF_GOSSIP,
    largest_group=20_000,
    largest_batch=lambda options: int(options.window_size),
    tells_stability=False,
    advice=advice,
    opens=True,
    founded=False,
    personal=frozenset(_OWN),
    rejoins=True,
    round=lambda options: int(options.round),
)
CAUSAL = GOSSIP._replace(
    name="causal",
    options=CausalOptions,
    packets=(
        ThinUpdates,
        Recover,
        ThinRecovered,
        Digest,
        Ask,
        Welcome,
        ClusterMembership,
        *TICKET_PACKETS,
        *RECORDS,
        PromiseRecord,
    ),
    build=causal_member.build,
    founded=True,
    level=Causal,
    promises=Promises(
        (*BASIC_LAWS, "fifo", "optimistic-causal", "ticket-uniqueness"),
        when_nothing_fails=("causal", "completeness"),
        source=_SOURCE,
    ),
    words=CAUSAL_WORDS,
    mutants=OF_CAUSAL,
    may_send=may_send,
    objection=objection,
    permit=Permit(
        needed=tickets_move,
        lease=lambda options: int(options.lease),
        bootstrap_node=founder_of,
        unneeded="its updaters are named for ever",
    ),
    state=StateTransfer(
        needed=lambda options: bool(options.state),
        possible=lambda options: bool(options.state),
        hint="say Causal(state=True)",
    ),
)
FAMILIES = (GOSSIP, CAUSAL)
