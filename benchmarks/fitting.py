"""What fits on which card, by the arithmetic: the table of docs/gpus.md.

python benchmarks/fitting.py            # prints it
python benchmarks/fitting.py --write    # into the page
"""

import argparse
import sys
from pathlib import Path

from lpfloop.loop.daemon.fitting_table import in_page, table_lines

PAGE = Path(__file__).parents[1] / "docs" / "gpus.md"


def main() -> None:
    """Print the table, or put it into the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true")
    lines = table_lines()
    if parser.parse_args().write:
        PAGE.write_text(in_page(PAGE.read_text(encoding="utf-8"), lines), encoding="utf-8")
    else:
        print("\n".join(lines))


if __name__ == "__main__":
    sys.exit(main())
