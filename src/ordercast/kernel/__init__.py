"""What every protocol needs and no more: the step, and mechanisms from values to values."""
