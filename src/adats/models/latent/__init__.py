"""Clicks and counts: rewards whose mean is a link away from a Gaussian theta."""
