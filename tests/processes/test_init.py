"""`lpfloop init`: the configuration of a first run, from options or from three answers."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from lpfloop.loop.cli.common import Exit

ROW = {"prompt": "What is 2 + 3?", "reference": "5", "task": "math"}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [ROW | {"prompt": f"What is 2 + {n}?", "reference": str(n + 2)} for n in range(12)]
    Path("prompts.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    return tmp_path


def test_three_answers():
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "lpfloop", "init"],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(theirs)
    os.write(ours, b"nowhere\ntiny\nprompts.jsonl\ntiny\n")
    stdout, stderr = process.communicate(timeout=300)
    os.close(ours)
    assert (process.returncode, stdout) == (Exit.DONE, "lpfloop.yaml\n"), stderr
    assert "error LPF-101: " in stderr
    assert stderr.count("Which model shall be improved?") == 2
    assert yaml.safe_load(Path("lpfloop.yaml").read_text())["critic"]["model"] == "tiny"
