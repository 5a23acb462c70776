"""`lpfloop run` on a device too small for the run: refused before it writes anything."""

import os

from models import show_gpus
from typer.testing import CliRunner

from lpfloop.loop.cli.app import app
from lpfloop.loop.daemon import machine_check
from lpfloop.policies import devices
from lpfloop.policies.memory.terms import GIB


def test_run_that_cannot_fit(tmp_path, monkeypatch):
    show_gpus(monkeypatch, tmp_path, "1 MiB")
    lake = tmp_path / "lake"
    given = ["demo", "--lake", str(lake), "--iterations", "1"]
    for words in (given, [*given, "--dry-run"]):
        refused = CliRunner().invoke(app, words)
        assert refused.exit_code == 2
        assert "memory=warn" in refused.output
    warned = CliRunner().invoke(app, [*given, "--dry-run", "--set", "memory=warn"])
    assert (warned.exit_code, "does not fit" in warned.output) == (0, True)
    assert not lake.exists()


def test_memory_of_visible_cards(tmp_path, monkeypatch):
    show_gpus(monkeypatch, tmp_path, "143771 MiB", "80 GiB")
    assert machine_check.devices().cards == (143771 * 2**20, 80 * GIB)
    os.environ[devices.VISIBLE] = "1"
    assert machine_check.devices().cards == (80 * GIB,)
    monkeypatch.setattr(devices, "installed_version", lambda n: None if n == "vllm" else "1")
    assert machine_check.devices().cards == ()
