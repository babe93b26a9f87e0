"""Tickets: who may update a cluster, decided without a centre. Never two owners of one ticket.

interface.py        what a causal member asks of the part that decides about tickets
entries.py          which event of a ticket: the numbers in stamps
packets.py          what members send each other about tickets, and what lease replicas persist
register.py         one replica's entry for each ticket: when a claim is granted; merging tables
lease_replica.py    a member of the replica set: claims, and its part in replacing the set
reconfiguration.py  replaces the replica set, when it should have other members
encounters.py       other clusters of our name that we met
liveness.py         which members are pinged, and which are alive
owner.py            claims a ticket, holds it by leases, releases it
refusals.py         what no member that follows the rules would send
leased.py           these parts as one: what a member of a cluster has
words.py            how packets about tickets read in interaction files
"""
