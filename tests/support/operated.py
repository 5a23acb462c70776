"""A real daemon on scripted models, let go on request by request through a gate."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from lpfloop.policies.engines.engine import Request, Sampling
from lpfloop.stores.journal_reader import Reader

SUPPORT = Path(__file__).parent
LIMIT_S = 900
"""A command takes seconds, one that draws reports some twenty; on a busy machine it is minutes."""
FREE = 1_000_000
CONFIG = """
extends: tiny
policy: {engine: {kind: scripted, script: "operated:gated"}}
critic: {engine: {kind: scripted, script: "scripts:critic"}}
reward: {model: none}
prompts: {per_iteration: 6, evaluated: 2, dev_share: 0, chunk: 1}
training: {min_pairs: 100000}
recipe: {name: rlrf, n: 1, m: 0}
"""
EVALUATED, SAMPLED = 2, 6
"""Units of one request each: M_0's evaluation, then the samples of iteration 1."""


def gated(request: Request, sampling: Sampling) -> str:
    """Answer when the gate lets one more request through."""
    gate = Path(os.environ["GATE"])
    with gate.with_suffix(".asked").open("a") as asked:
        asked.write(f"{request.request_id}\n")
    number = len(gate.with_suffix(".asked").read_text().splitlines())
    while number > int(gate.read_text() or 0):
        time.sleep(0.01)
    return f"Okay. The answer is {request.seed % 7}."


class Operated:
    """A run in a lake of its own, called `slow` unless named, and the commands that operate it."""

    def __init__(self, folder: Path, config: str = CONFIG, name: str = "slow") -> None:
        self.lake = folder / "lake"
        self.run = self.lake / "runs" / name
        self.gate = folder / "gate"
        self.config = folder / "slow.yaml"
        self.config.write_text(config)
        self.allow(FREE)
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(SUPPORT),
            "GATE": str(self.gate),
            "LPFLOOP_LAKE": str(self.lake),
        }
        self.options = ["--config", str(self.config), "--run", name]

    def allow(self, requests: int) -> None:
        """Let so many requests through in all."""
        draft = self.gate.with_suffix(".new")
        draft.write_text(str(requests))
        draft.replace(self.gate)

    def start(self, *arguments: str, **options) -> subprocess.Popen[str]:
        """Start a command."""
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        return subprocess.Popen(
            [sys.executable, "-m", "lpfloop", *arguments],
            env=self.environment,
            **{"text": True, **streams},
        )

    def call(self, *arguments: str) -> tuple[int, str, str]:
        """Run a command to its end."""
        process = self.start(*arguments)
        stdout, stderr = process.communicate(timeout=LIMIT_S)
        return process.returncode, stdout, stderr

    def detach(self, *arguments: str) -> int:
        """Start the run as a daemon; return its process id."""
        code, stdout, stderr = self.call(*(arguments or ("run", *self.options)), "--detach")
        assert code == 0, stderr
        pid, name = stdout.split()
        assert name == self.run.name
        return int(pid)

    def done(self, stage: str = "sample") -> int:
        """Return how many units of a stage of iteration 1 (or 0) are committed."""
        if not (self.run / "journal.sqlite").exists():
            return 0
        reader = Reader(self.run)
        found = [state.done for state in reader.stages() if state.stage == stage]
        reader.close()
        return sum(found)

    def events(self, kind: str) -> list:
        """Return the journal's events of a kind."""
        reader = Reader(self.run)
        found = reader.events(kind)
        reader.close()
        return found

    def asked(self) -> int:
        """Return how many requests the policy has been sent."""
        path = self.gate.with_suffix(".asked")
        return len(path.read_text().splitlines()) if path.exists() else 0

    def end(self) -> None:
        """Kill a daemon that a test has left behind."""
        for event in self.events("start") if (self.run / "journal.sqlite").exists() else ():
            try:
                if "lpfloop" in Path(f"/proc/{event['pid']}/cmdline").read_text():
                    os.kill(event["pid"], signal.SIGKILL)
            except (FileNotFoundError, ProcessLookupError):
                continue
