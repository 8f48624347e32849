"""Contact-free validation of the legs' dynamics (paper, section V)."""
