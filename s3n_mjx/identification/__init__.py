"""Robot parameters from measured frequency responses (paper, section IV)."""
