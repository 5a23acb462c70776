"""Methods that sample while they train: their numerics, their trainers, what a step leaves."""
