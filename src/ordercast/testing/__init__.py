"""What you need to test your own programs, and the protocols, on the simulator."""
