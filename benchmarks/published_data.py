"""Send published data with known answers through the project's measures and readers.

Each set is one command. It prints the figures, and each row where the project says something else
than the set's own label. results/judges.md argues each of them.

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
    """Print what the study of each named set finds."""
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
