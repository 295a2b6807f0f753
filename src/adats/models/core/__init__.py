"""What all models share: types, checks, statistics, sums, factors, files."""
