"""The primary component: of the views of a group at most one at a time is the primary one.

packets.py  what members of a view tell each other, and what they persist
rules.py    when a view may become the primary one
voter.py    one member's part: report, attempt, form

For families whose members agree on views. All of it is per group name: a member has one vote,
whatever formation it is in, and keeps it over restarts.
"""
