"""The protocol families: one folder a family, one file a responsibility."""
