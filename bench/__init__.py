"""Speed, as ratios against a hand-written loop in the same run. `make bench` prints them with their limits."""
