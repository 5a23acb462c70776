# pyright: basic
"""Compare the verdicts of lpfloop's math verifier with math-verify's alone.

    python benchmarks/math_verify_side.py --data FOLDER

math-verify (the extra `math`) gets the whole reference and the whole answer, as in its README:
`verify(parse(reference), parse(answer))`; a reference of one line is put between dollar signs.
lpfloop finds the final answers and compares plain numbers itself, and uses math-verify for
formulas only. The script prints how many verdicts agree, and each answer on which they differ,
with the label of the data set.
"""

import argparse
import logging
from collections import Counter
from pathlib import Path

from math_verify import parse, verify
from published_sets.mathematics import Solution, eight, systems, verified

SETS = {"gsm8k-systems": systems, "qwen-maj8": eight}
SHOWN = 120
"""Printed characters from an answer's end."""


def by_math_verify(solution: Solution) -> bool:
    """Return whether an answer is right by math-verify alone."""
    reference = solution.reference
    gold = parse(reference if "\n" in reference else f"${reference}$", parsing_timeout=None)
    return verify(gold, parse(solution.answer, parsing_timeout=None), timeout_seconds=None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder of the sets' files")
    parser.add_argument("sets", nargs="*", default=[*SETS], help=f"of {', '.join(SETS)}")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    for name in options.sets:
        counts, differing = Counter(), []
        for solution, verdict in verified(SETS[name](options.data)):
            ours, theirs = verdict.rating == 1, by_math_verify(solution)
            counts["answers"] += 1
            counts["same verdict"] += ours == theirs
            counts["lpfloop agrees with the label"] += ours == solution.right
            counts["math-verify agrees with the label"] += theirs == solution.right
            if ours != theirs:
                label, other = ("right" if x else "wrong" for x in (solution.right, theirs))
                end = " ".join(solution.answer.split())[-SHOWN:]
                differing.append(
                    f"- {solution.place}: label {label}, math-verify {other}: ...{end}"
                )
        print(name, *(f"{what}: {count:,}" for what, count in counts.items()), sep="\n  ")
        print(*differing, sep="\n")


if __name__ == "__main__":
    main()
