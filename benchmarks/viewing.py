"""Time that the viewer takes for a page, over HTTP like a browser.

    python benchmarks/viewing.py --folder /tmp/lake --prompts 80000  # writes 2.4 million candidates
    python benchmarks/viewing.py --lake lake --run tiny-rlrf         # an existing lake

Starts `lpfloop view` on the lake and requests each page several times. The first answer of a page
is cold: the viewer verifies files and reads their footers; the others are warm. Prints the seconds
of the first, the median of the others and of their processor seconds (which other work on the
machine does not change), and the size of the page.
"""

import argparse
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import httpx2
import psutil
from lake import write
from synthetic import run_name

ROUNDS = 7
LISTS = {
    "prompts": "/prompts",
    "prompts by task": "/prompts?task=math",
    "candidates": "/candidates",
    "candidates, half way": "/candidates?start=1200000",
    "candidates of a task": "/candidates?task=math",
    "candidates by rating": "/candidates?aspect=Factuality&rating=-1",
    "candidates by reward range": "/candidates?min_reward=2.5",
    "candidates by rating and reward": "/candidates?min_reward=2&rating=-1",
    "candidates, highest reward first": "/candidates?sort=-reward",
    "candidates with a text": "/candidates?text=the",
    "candidates with a text that none has": "/candidates?text=zzqqq",
    "critiques": "/critiques",
    "critiques by rating": "/critiques?aspect=Clarity&rating=0",
    "pairs": "/pairs",
    "pairs, largest margin first": "/pairs?sort=-margin",
}
FIRST = re.compile(r'href="(/runs/[^"]*/prompts/[^"?]+)[^"#]*#([^"]+)"')


@contextmanager
def served(lake: Path) -> Iterator[tuple[httpx2.Client, psutil.Process]]:
    """Yield a client logged in to the lake's viewer by its token, and the viewer's process."""
    command = [sys.executable, "-P", "-m", "lpfloop", "view", "--lake", str(lake)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            entry = process.stdout.readline().strip()
            own = entry.partition("/?")[0]
            with httpx2.Client(base_url=own, trust_env=False, timeout=600) as client:
                client.get(entry)
                yield client, psutil.Process(process.pid)
        finally:
            process.send_signal(signal.SIGINT)


def pages(client: httpx2.Client, run: str) -> dict[str, str]:
    """Return the addresses to request: the lists, and pages of a listed row."""
    found = FIRST.search(client.get(f"/runs/{run}/candidates").text)
    here = {} if found is None else {"prompt": found[1], "row": f"/runs/{run}/rows/{found[2]}"}
    lists = {name: f"/runs/{run}{path}" for name, path in LISTS.items()}
    return (
        {"runs": "/", "run": f"/runs/{run}", "run, unchanged": f"/runs/{run}/live"} | here | lists
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Took:
    """Wall and processor seconds of several answers to one request, and the last page."""

    wall: list[float]
    busy: list[float]
    text: str


def asked(client: httpx2.Client, server: psutil.Process, path: str, rounds: int) -> Took:
    """Request a page several times."""
    wall, busy, text = list[float](), list[float](), ""
    for _ in range(rounds + 1):
        before, began = sum(server.cpu_times()[:2]), time.perf_counter()
        answer = client.get(path)
        wall.append(time.perf_counter() - began)
        busy.append(sum(server.cpu_times()[:2]) - before)
        assert answer.status_code in (200, 303), answer.text
        text = answer.text
    return Took(wall=wall, busy=busy, text=text)


def main() -> None:
    """Measure, and print a line for each page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="where a synthetic lake is written")
    parser.add_argument("--prompts", type=int, default=80_000)
    parser.add_argument("--lake", type=Path)
    parser.add_argument("--run")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args()
    lake, run = given.lake, given.run
    if lake is None:
        lake, run = given.folder, run_name(given.prompts)
        if not (lake / "runs" / run).exists():
            write(lake, given.prompts)
    with served(lake) as (client, server):
        print(f"{'page':38} {'cold':>7} {'warm':>7} {'busy':>7} {'kB':>6}")
        for name, path in pages(client, run).items():
            took = asked(client, server, path, given.rounds)
            print(
                f"{name:38} {took.wall[0]:7.2f} {median(took.wall[1:]):7.3f} "
                f"{median(took.busy[1:]):7.3f} {len(took.text) / 1000:6.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
