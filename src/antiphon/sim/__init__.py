"""The deterministic simulator: one heap and clock, networks with faults, and clusters of the live protocol objects."""
