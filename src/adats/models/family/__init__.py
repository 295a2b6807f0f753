"""Arms of any one-parameter exponential family (paper, Section 3.4)."""
