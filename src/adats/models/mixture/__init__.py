"""One of several candidate priors is right (paper, Section 3.4)."""
