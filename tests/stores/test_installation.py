import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from lpfloop.stores import installation
from lpfloop.stores.installation import activation, pip_install, requirement

ROOT = Path(__file__).parents[2]


def put_pip(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    pip = folder / "pip"
    pip.write_text("#!/bin/sh\n")
    pip.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    assert shutil.which("pip") == str(pip)


def test_the_command_names_what_an_index_has_and_this_project_asks():
    assert pip_install("duckdb", "lancedb").endswith("pip install 'duckdb>=2' 'lancedb>=0.40'")
    assert pip_install("wandb").endswith("pip install wandb")


def test_the_short_command_is_told_where_it_reaches_this_installation(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    put_pip(tmp_path / "bin", monkeypatch)
    assert pip_install("wandb") == "pip install wandb"
    put_pip(tmp_path / "other", monkeypatch)
    assert pip_install("wandb") == f"{tmp_path}/bin/python -m pip install wandb"


def test_the_named_python_installs_into_this_installation(tmp_path, monkeypatch):
    venv.create(tmp_path / "venv", with_pip=False)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "venv" / "bin" / "python"))
    program, *_ = pip_install("wandb").split()
    where = subprocess.run([program, "-c", "import sys; print(sys.prefix)"], stdout=-1, check=True)
    assert where.stdout.decode().strip() == str(tmp_path / "venv")


def test_the_command_told_to_a_fresh_shell_makes_lpfloop_a_command(tmp_path, monkeypatch):
    venv.create(tmp_path / "my venv", with_pip=False)
    program = tmp_path / "my venv" / "bin" / "lpfloop"
    program.write_text("#!/bin/sh\necho it is here\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program.with_name("python")))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    for folder in (tmp_path, tmp_path / "my venv" / "lib"):
        monkeypatch.chdir(folder)
        shell = f"{activation()} && lpfloop"
        done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=True)
        assert done.stdout == "it is here\n"
    monkeypatch.chdir(tmp_path)
    assert activation() == ". 'my venv/bin/activate'"


def test_nothing_is_told_where_lpfloop_is_a_command_or_there_is_no_environment(
    tmp_path, monkeypatch
):
    venv.create(tmp_path / "venv", with_pip=False)
    program = tmp_path / "venv" / "bin" / "lpfloop"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program.with_name("python")))
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    assert activation() is None
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert activation() is not None
    program.with_name("activate").unlink()
    assert activation() is None


def test_away_from_the_checkout_the_metadata_say_what_is_asked(tmp_path, monkeypatch):
    asked = ["duckdb>=7; extra == 'lake'", "langdetect>=8 ; extra == 'checks'"]
    monkeypatch.setattr(installation, "ROOT", tmp_path)
    monkeypatch.setattr(installation, "requires", lambda name: asked)
    assert requirement("duckdb") == "duckdb>=7"
    assert requirement("langdetect") == "langdetect>=8"
    assert requirement("wandb") == "wandb"


def test_no_message_asks_for_a_package_that_no_index_has():
    # Others may change hidden folders meanwhile: git, and tools that keep a cache.
    rooms = [room for room in ROOT.iterdir() if room.is_dir() and not room.name.startswith(".")]
    files = [*ROOT.glob("*.py"), *(f for room in rooms for f in room.rglob("*.py"))]
    asked = re.compile(r"install [^\n]{0,20}lpfloop\[")
    sources = [f for f in files if "tests" not in f.relative_to(ROOT).parts]
    assert len(sources) > 300
    assert [str(f) for f in sources if asked.search(f.read_text())] == []
