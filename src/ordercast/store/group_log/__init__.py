"""The durable log of a group: entries that are at their position for ever, and states."""
