"""Linear bandits (paper, Section 3.2)."""
