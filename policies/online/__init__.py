"""Methods that sample while they train: numerics, trainers, and the rows of their steps."""
