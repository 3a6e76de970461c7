"""Explore a trace of any size: an overview of a whole run, and any window of it within moments."""
