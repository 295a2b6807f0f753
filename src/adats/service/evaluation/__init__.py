"""What the counters of an experiment say: pure functions of sums, for numbers or for arrays."""
