"""The live world: the same machines between real processes, over real sockets."""
