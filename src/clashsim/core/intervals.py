"""Intervals of predictions that are stated and tested."""

INTERVAL_SHARES = (0.68, 0.9)  # of the outcomes, which the intervals should hold
