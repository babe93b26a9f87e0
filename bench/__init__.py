"""Figures, never assertions on time."""
