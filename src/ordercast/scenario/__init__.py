"""What happens in a run, as data: groups, load, network and faults, the same for every world."""
