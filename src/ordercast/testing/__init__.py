"""What you need to test your own programs, and the protocols, on the simulator.

run = simulate("scenarios/one_crash.toml", seed=1)
assert not run.broken
"""

from ordercast.testing.simulation import Simulated, simulate

__all__ = ["Simulated", "simulate"]
