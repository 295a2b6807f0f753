"""Pages to look at: what was learned, whether it works, whether to stop. They change nothing."""
