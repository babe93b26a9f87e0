"""Tickets: who may update a cluster, decided without a centre. Never two owners of one ticket.

packets.py    what members say to each other about tickets, and what guardians keep on disk
register.py   one guardian's entry for each ticket: when a claim is granted; how tables are merged
guardian.py   a member of the guard set: claims, and its part in replacing the set
steward.py    replaces the guard set, when it should have other members
owner.py      claims a ticket, holds it by leases, gives it back
refusals.py   what no member that follows the rules would send
leased.py     these parts as one: what a member of a cluster has
words.py      how packets about tickets read in interaction files
"""
