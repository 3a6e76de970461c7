"""Space-time diagrams: members as lines, messages as arrows; laid out first, then drawn."""
