"""Gaussian arms (paper, Sections 3.1 and 3.3)."""
