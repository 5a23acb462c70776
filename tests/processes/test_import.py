"""The same command finishes a killed import."""

import json
import os
import signal
import subprocess
import sys

from typer.testing import CliRunner

from lpfloop.loop.cli.app import app
from lpfloop.stores.digest import run_digest


def test_killed_import_is_finished(tmp_path):
    path, lake = tmp_path / "rows.jsonl", tmp_path / "lake"
    rows = [{"prompt": f"p{n}", "response": f"r{n}"} for n in range(2500)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["import", str(path), "--lake", str(lake), "--run"]
    killed = subprocess.run(
        [sys.executable, "-m", "lpfloop", *words, "killed"],
        env={**os.environ, "LPFLOOP_FAILPOINT": "journal.commit.before:kill"},
        capture_output=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    for name in ("killed", "whole"):
        told = CliRunner().invoke(app, [*words, name])
        assert told.exit_code == 0, told.stderr
    assert run_digest(lake / "runs" / "killed") == run_digest(lake / "runs" / "whole")
