"""The sans-IO core: protocol machines that know no clock, no socket and no global randomness."""
