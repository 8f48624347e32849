"""Speed, as ratios of runs side by side in one process."""
