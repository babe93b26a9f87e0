"""The only place where bytes are made or read."""
