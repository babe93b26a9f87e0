"""What `ordercast demo` runs: two scenarios, an experiment, and a planted bug."""

from __future__ import annotations

LIVE = """
name = "demo"
family = "causal"
processes = 5
duration = "9s"
quiet = "3s"

[options]
tickets = 3              # so many may update at a time
lease = "1s"             # a dead updater's ticket can be had after a little more than this
round = "20ms"

[workload]
senders = 4              # n5 only reads
rate = 40
begins = { n4 = "2500ms" }   # by then all tickets are taken, so it waits

[[fault]]                # an updater is killed, and comes back as a new incarnation
at = "4s"
kind = "crash"
nodes = ["n2"]
for = "3s"
"""

SWEPT = """
name = "causal cluster"
family = "causal"
processes = 25
duration = "2s"
quiet = "2s"

[options]
ownership = "fixed"
tickets = 5
fan_out = 2              # thrifty: gossip alone does not reach everybody
hops = 4

[workload]
rate = 20
"""

EXPERIMENT = """
name = "What recovery is good for"
scenario = "scenario.toml"
seeds = 3

[grid]
"network.loss" = [0.0, 0.1, 0.2, 0.3]
"options.recovery" = ["off", "any-4"]

[[figure]]
title = "Events that a process never delivers"
x = "network.loss"
y = "lost_share"
percent = true
lines = "options.recovery"

[[figure]]
title = "Rounds from update to delivery"
x = "network.loss"
y = "rounds_mean"
lines = "options.recovery"
"""

BUGGY = """
name = "a planted bug"
family = "fifo"
processes = 5
duration = "4s"
quiet = "3s"
workload = { rate = 40 }
network = { delay = "5ms", jitter = 0.8, spread = 0.6 }
fault = [ { at = "2s", kind = "crash", nodes = ["n4"], for = "1s" } ]
"""
BUG = "forgets-the-dead"
