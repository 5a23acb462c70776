"""Does DPO lower its chosen answers, and do remedies help? Repeats trainings of finished runs.

For each iteration of each run: starts from M_{t-1}, trains each arm on the iteration's pairs, and
measures the log-probabilities of chosen and rejected, and the number of solved held-out prompts.
So all arms have the same start and the same pairs. The script appends results to a file, and skips
those that it already contains.

    python benchmarks/displacement.py lake/runs/* --results displacement.jsonl
    python benchmarks/displacement.py --results displacement.jsonl
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from displaced.arms import ARMS
from displaced.tables import print_tables


def main() -> None:
    """Train the missing arms, then print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="*", type=Path, help="folders of runs")
    parser.add_argument("--results", type=Path, required=True, help="JSONL file")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--iterations", nargs="+", type=int, default=[1, 2, 3, 4])
    parser.add_argument("--tasks", nargs="+", default=["math", "general"], help="held-out tasks")
    arguments = parser.parse_args()
    done = read(arguments.results)
    known = {(row["run"], row["iteration"], row["arm"]) for row in done}
    for folder in arguments.runs:
        train_missing(folder, arguments, known)
    print_tables(read(arguments.results))


def read(path: Path) -> list[dict[str, Any]]:
    """Return the results so far."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def train_missing(
    folder: Path, arguments: argparse.Namespace, known: set[tuple[str, int, str]]
) -> None:
    """Train a run's arms that are missing in the results."""
    from displaced.study import Source, Study

    from lpfloop.critics.verify import Verifier

    source = Source.of(folder, arguments.tasks)
    name = folder.parent.parent.name
    trained = source.trained()
    with tempfile.TemporaryDirectory() as work, Verifier(sentence_match=True) as verifier:
        for iteration in (n for n in arguments.iterations if n in trained):
            missing = [a for a in arguments.arms if (name, iteration, a) not in known]
            if not missing:
                continue
            study = Study(
                source=source, iteration=iteration, work=Path(work) / "job", verifier=verifier
            )
            for arm in missing:
                row = study.run(arm)
                with arguments.results.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print(name, iteration, arm, f"{row.get('seconds', 0):.0f} s", flush=True)


if __name__ == "__main__":
    main()
