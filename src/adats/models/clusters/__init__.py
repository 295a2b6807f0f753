"""Tasks of several kinds: every task is of one of a few, and nobody says of which."""
