"""The durable log of one process."""
