"""A scenario with real processes: one operating system process a member, on the wall clock."""
