"""Traces: every event of every member, in one public schema."""
