"""Membership: pairwise connections, and views."""
