"""Antiphon: group communication for Python, live, simulated and verified from its traces."""

__version__ = "0.1.0"
