"""The checks for a GPU run on a CPU with tiny shapes, without packages missing on that machine."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.model

ABSENT = ("vllm", "duckdb", "lancedb", "obstore", "boto3", "ray", "moto", "textual", "starlette")
WITHOUT = f"""
from importlib.machinery import PathFinder

found = PathFinder.find_spec

@staticmethod
def find_spec(name, path=None, target=None):
    return None if name.partition(".")[0] in {ABSENT} else found(name, path, target)

PathFinder.find_spec = find_spec
"""


def checked(root, folder, *options):
    """Run checks, without the packages that are absent; return the process."""
    (folder / "site").mkdir(exist_ok=True)
    (folder / "site" / "sitecustomize.py").write_text(WITHOUT)
    return subprocess.run(
        [sys.executable, root / "benchmarks" / "gpu_check.py", folder, "--tiny", *options],
        env=os.environ | {"PYTHONPATH": str(folder / "site"), "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.usefixtures("real_python")
def test_one_check(root, tmp_path):
    done = checked(root, tmp_path, "--only", "sampling")
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads((tmp_path / "gpu.json").read_text())
    assert told["scale"] == "tiny"
    assert told["versions"]["torch"] != "absent"
    check = told["checks"]["sampling"]
    assert check["outcome"] == "ok"
    speed, slept = check["figures"]
    assert speed["values"]["tokens/s"] > 0
    assert {**speed["goals"], **slept["goals"]} == {"same twice": True, "same answers after": True}


def test_slow_check_is_stopped(root, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(root / "benchmarks"))
    import gpu_check

    monkeypatch.setitem(gpu_check.LIMITS_S, "sampling", 0.01)
    assert gpu_check.run_all(tmp_path, ["sampling"], tiny=True) == 1
    check = json.loads((tmp_path / "gpu.json").read_text())["checks"]["sampling"]
    assert check["outcome"].startswith("stopped after")
    assert check["figures"] == []


def test_every_check_has_a_limit(root, monkeypatch):
    monkeypatch.syspath_prepend(str(root / "benchmarks"))
    import gpu_check
    import gpu_checks

    assert gpu_check.LIMITS_S.keys() == gpu_checks.CHECKS.keys()


def test_flops_of_a_llama(root, monkeypatch):
    monkeypatch.syspath_prepend(str(root / "benchmarks"))
    import gpu_checks

    from lpfloop.policies.memory.shapes import shape_of_config

    shape = shape_of_config(gpu_checks.PUBLISHED["Llama-3.2-1B"])
    # 1.236e9 weights, all in matrices: the output layer shares the embedding's.
    attention = 6 * 16 * 2048 * 2048
    full = gpu_checks.flops_per_token(shape, 2048, adapts=False)
    assert full == pytest.approx(6 * 1.236e9 + attention, rel=1e-3)
    lora = gpu_checks.flops_per_token(shape, 2048, adapts=True)
    assert lora == pytest.approx(4 * 1.236e9 + attention, rel=1e-3)
