"""GPUs that are not there: a driver's program that shows them, on a machine without any."""

from pathlib import Path

import pytest

from lpfloop.policies import devices

UUID = "GPU-{number}f00-cafe"


def show_gpus(monkeypatch: pytest.MonkeyPatch, folder: Path, *memory: str) -> None:
    """Let nvidia-smi show GPUs of such memory, such as `24 GiB`, and vLLM's build be for them."""
    rows = "\n".join(f"{UUID.format(number=n)}, {m}, Toy" for n, m in enumerate(memory))
    program = folder / "driver" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{rows}\nEND\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    monkeypatch.delenv(devices.VISIBLE, raising=False)
    monkeypatch.setattr(devices, "installed", lambda name: "1" if name == "vllm" else None)
