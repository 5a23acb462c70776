# pyright: basic
"""Check on a GPU what CPUs cannot show: speed, memory, kernels, types, two processes on a card.

    benchmarks/gpu_check.sh FOLDER                     # install the bundle, check, write gpu.json
    python benchmarks/gpu_check.py FOLDER --tiny       # the same checks with tiny shapes, on a CPU
    python benchmarks/gpu_check.py FOLDER --only resume publish

Each check of gpu_checks.py runs in a separate process with a time limit, so a slow or failing one
does not stop the others. FOLDER/gpu.json has the versions, the card, every figure and the last 20
lines of every failure; FOLDER/CHECK.log has a check's output. A missed goal fails nothing; the
exit code is 1 if a check failed.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CHECKS_FILE = Path(__file__).with_name("gpu_checks.py")
GIB = 2**30
WHOLE_S = 480
"""Time limit of all checks together, in seconds."""
LEAST_S = 15
"""A check needs at least so many seconds; with less time left, it is skipped."""
TAIL_LINES = 20
LIMITS_S = {
    "tests": 75,
    "speed-1b": 120,
    "speed-8b": 100,
    "options": 120,
    "publish": 90,
    "resume": 90,
    "sampling": 45,
    "tiny-run": 90,
    "ppo": 75,
    "grpo": 75,
    "two-processes": 75,
    "speed-3b": 60,
}
"""Each check with its limit in seconds, the most important first: the last ones may be skipped."""
PACKAGES = (
    "accelerate", "datasets", "flash-attn", "liger-kernel", "peft", "polars", "torch",
    "transformers", "triton", "trl",
)  # fmt: skip


@dataclass
class Outcome:
    """Result of a check; `figures` are the lines that it wrote."""

    outcome: str
    seconds: float = 0.0
    figures: list[dict[str, Any]] = field(default_factory=list)
    tail: list[str] = field(default_factory=list)


def run_check(name: str, folder: Path, work: Path, *, tiny: bool, limit_s: float) -> Outcome:
    """Run a check in a new process group, and kill the group at the end."""
    log, figures = folder / f"{name}.log", folder / f"{name}.jsonl"
    figures.unlink(missing_ok=True)
    scale = "tiny" if tiny else "full"
    began = time.perf_counter()
    with log.open("wb") as out:
        child = subprocess.Popen(
            [sys.executable, str(CHECKS_FILE), name, scale, str(work), str(figures)],
            stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            outcome = "ok" if child.wait(limit_s) == 0 else "failed"
        except subprocess.TimeoutExpired:
            outcome = f"stopped after {limit_s:.0f} s"
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    told = figures.read_text().splitlines() if figures.exists() else []
    tail = [] if outcome == "ok" else log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
    return Outcome(outcome, time.perf_counter() - began, [json.loads(line) for line in told], tail)


def machine() -> dict[str, Any]:
    """Describe the card, the versions and the commit."""

    def said(*command: str) -> str:
        try:
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            return "unknown"
        return done.stdout.strip() or "unknown"

    def installed(name: str) -> str:
        try:
            return version(name)
        except PackageNotFoundError:
            return "absent"

    query = "--query-gpu=name,memory.total,driver_version"
    return {
        "card": said("nvidia-smi", query, "--format=csv,noheader"),
        "commit": said("git", "rev-parse", "HEAD"),
        "python": sys.version.split()[0],
        "cores": len(os.sched_getaffinity(0)),
        "versions": {name: installed(name) for name in PACKAGES},
    }


def run_all(folder: Path, names: list[str], *, tiny: bool) -> int:
    """Run the checks in turn; print the table, write gpu.json, return 1 if one failed."""
    folder.mkdir(parents=True, exist_ok=True)
    began, told = time.perf_counter(), machine()
    print(f"card: {told['card']}; python {told['python']}; commit {told['commit'][:8]}")
    outcomes: dict[str, Outcome] = {}
    # In memory, if there is enough of it: writing and reading weights of 16 GB takes seconds.
    memory = Path("/dev/shm")  # noqa: S108 -- a folder with a random name is made in it
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > 48 * GIB
    for name in names:
        left = WHOLE_S - (time.perf_counter() - began)
        if left < LEAST_S:
            outcomes[name] = done = Outcome("skipped: no time left")
        else:
            with tempfile.TemporaryDirectory(dir=memory if roomy else None) as work:
                limit_s = min(LIMITS_S[name], left)
                done = run_check(name, folder, Path(work), tiny=tiny, limit_s=limit_s)
            outcomes[name] = done
        print(f"{name}: {done.outcome}, {done.seconds:.0f} s", flush=True)
        for figure in done.figures:
            print(f"  {figure['text'][:150]}", flush=True)
        content = told | {
            "scale": "tiny" if tiny else "full",
            "seconds": time.perf_counter() - began,
            "checks": {n: asdict(o) for n, o in outcomes.items()},
        }
        (folder / "gpu.json").write_text(json.dumps(content, indent=1) + "\n")
    goals = [m for o in outcomes.values() for f in o.figures for m in f["goals"].values()]
    bad = [name for name, done in outcomes.items() if done.outcome != "ok"]
    for name in bad:
        print(f"{name}: {(outcomes[name].tail or [''])[-1][:150]}")
    print(
        f"{len(outcomes) - len(bad)} of {len(outcomes)} checks ok, {sum(goals)} of {len(goals)} "
        f"goals met, in {time.perf_counter() - began:.0f} s; all figures: {folder / 'gpu.json'}"
    )
    return 1 if bad else 0


def main() -> int:
    """Run the requested checks."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="where gpu.json and the logs are written")
    parser.add_argument("--tiny", action="store_true", help="tiny shapes, for a CPU")
    parser.add_argument("--only", nargs="+", choices=[*LIMITS_S], default=[*LIMITS_S])
    args = parser.parse_args()
    return run_all(args.folder, args.only, tiny=args.tiny)


if __name__ == "__main__":
    sys.exit(main())
