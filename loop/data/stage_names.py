"""The labels of stages that ask again about the same rows: `critique:sample#2`."""

AGAIN = "#"


def sampled_again(label: str, number: int) -> str:
    """Return the label of the stage with the critiques of this number, from 1, of some answers."""
    return label if number == 1 else f"{label}{AGAIN}{number}"


def named(label: str) -> str:
    """Return the label of the stage with the first critiques."""
    return label.partition(AGAIN)[0]
