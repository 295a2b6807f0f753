"""Poisson and exponential arms with gamma beliefs (paper, Section 3.4)."""
