"""Some commands of the docs, run in separate processes."""

import re
import shlex
from pathlib import Path

import pytest
from processes import EVALUATED, Operated

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
LIVE_BLOCK = re.compile(r"^```sh live\n(.*?)^```", re.MULTILINE | re.DOTALL)
LIVE_WORLD = {
    "LPFLOOP_POLICY__ENGINE__KIND": "scripted",
    "LPFLOOP_POLICY__ENGINE__SCRIPT": "scripts:gated",
    "LPFLOOP_CRITIC__ENGINE__KIND": "scripted",
    "LPFLOOP_CRITIC__ENGINE__SCRIPT": "scripts:critic",
    "LPFLOOP_REWARD__MODEL": "none",
    "LPFLOOP_PROMPTS__PER_ITERATION": "6",
    "LPFLOOP_PROMPTS__MAX_TEST": "2",
    "LPFLOOP_PROMPTS__MAX_DEV": "2",
    "LPFLOOP_PROMPTS__CHUNK": "1",
    "LPFLOOP_SHUTDOWN_TIMEOUT_S": "0.1",
}
blocks = [block for page in PAGES for block in LIVE_BLOCK.findall(page.read_text())]


@pytest.mark.crash
@pytest.mark.parametrize("number", range(len(blocks)))
def test_live_commands_in_their_order(tmp_path, number):
    run = Operated(tmp_path, name="tiny-rlrf")
    run.environment.update(LIVE_WORLD)
    run.allow(EVALUATED + 1)
    try:
        for line in blocks[number].splitlines():
            code, stdout, stderr = run.call(*shlex.split(line)[1:])
            assert code == 0, f"{line}: {stderr}"
            assert stdout, line
    finally:
        run.end()
