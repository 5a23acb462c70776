"""What each practice of UltraFeedback and ChatGLM-RLHF changes, off and on, over seeds.

Runs the tiny world with `lpfloop run`; finished runs are not repeated. Prints a study's claim and
its tables as Markdown, and with `--plots FOLDER` writes its plot there.

    python benchmarks/practices.py length --seeds 3 --folder lake/practices --plots docs
"""

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path

from practice import fine_grained, l2, length, next_token, published, reference
from practice.arms import Options, Report

from lpfloop.loop.evaluation.plots import write_plot

STUDIES: Mapping[str, Callable[[Options], Report]] = {
    "length": length.study,
    "l2": l2.study,
    "reference": reference.study,
    "next-token": next_token.study,
    "fine-grained": fine_grained.study,
    "published": published.study,
}


def main() -> None:
    """Run what is missing, and print what was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--folder", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds")
    parser.add_argument("--set", action="append", default=[], help="section.key=value for all runs")
    parser.add_argument("--plots", type=Path, help="folder for the plot")
    arguments = parser.parse_args()
    seeds = range(arguments.seed, arguments.seed + arguments.seeds)
    options = Options(lake=arguments.folder, seeds=seeds, settings=arguments.set)
    report = STUDIES[arguments.study](options)
    print(f"Claim: {report.claim}")
    for table in report.tables:
        print(f"\n{table.markdown()}")
    if arguments.plots is not None and report.panels:
        write_plot(arguments.plots / f"practice-{arguments.study}.svg", report.panels, force=True)


if __name__ == "__main__":
    main()
