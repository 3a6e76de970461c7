"""What people look at: the page, its figures, and space-time diagrams, each one self-contained HTML."""
