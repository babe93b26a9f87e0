"""A world in virtual time: one integer seed is the whole run."""
