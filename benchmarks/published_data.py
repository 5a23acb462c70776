"""Send published data with known answers through lpfloop's measures and readers.

Each set is one command. It prints the figures, and each row on which lpfloop disagrees with the
set's label. results/judges.md discusses each of them.

    python benchmarks/published_data.py gsm8k-systems --data FOLDER
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from published_sets.imports import IMPORTS
from published_sets.instructions import INSTRUCTIONS
from published_sets.math_verify_cases import CASES
from published_sets.mathematics import MATHEMATICS
from published_sets.replies import REPLIES
from published_sets.study import Study

STUDIES: Mapping[str, Study] = {**MATHEMATICS, **INSTRUCTIONS, **REPLIES, **IMPORTS, **CASES}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the findings of each named set's study."""
    form = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("sets", nargs="+", choices=[*STUDIES, "all"])
    parser.add_argument("--data", type=Path, required=True, help="the folder of the sets' files")
    options = parser.parse_args(arguments)
    every = [name for name in STUDIES if name not in CASES]
    for name in every if "all" in options.sets else options.sets:
        study = STUDIES[name]
        print(f"{name}: {study.through}")
        for line in study.find(options.data).told():
            print(f"  {line}")


if __name__ == "__main__":
    main()
