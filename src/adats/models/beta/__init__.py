"""Bernoulli arms with beta beliefs (paper, Section 3.4)."""
