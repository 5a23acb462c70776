"""The installed package: light to import, and complete."""

import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import lpfloop

FLOORS = ("configs", "critics", "loop", "policies", "stores")
HEAVY = ("torch", "vllm", "transformers", "trl", "accelerate", "datasets", "lancedb")


def python(code: str) -> str:
    """Run `code` in a fresh interpreter, away from the checkout."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd="/"
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def modules(root: Path, *folders: str) -> list[str]:
    """Return the importable modules in these folders, except those that train the tiny world."""
    paths = [
        path.relative_to(root) for folder in folders for path in root.glob(f"{folder}/**/*.py")
    ]
    kept = [path for path in paths if "tiny" not in path.parts]
    return sorted(".".join(["lpfloop", *path.with_suffix("").parts]) for path in kept)


def test_every_package_is_installed(root) -> None:
    packages = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]
    found = {path.parent for floor in FLOORS for path in (root / floor).glob("**/__init__.py")}
    named = {root / Path(*name.split(".")[1:]) for name in packages["packages"]} - {root}
    assert named == found


def test_imports_load_no_model_library(root) -> None:
    """One process imports the package, then the command line, then three packages completely."""
    names = modules(root, "configs", "stores", "loop")
    before, cli, after = python(
        "import sys, lpfloop\n"
        "print(*sys.modules)\n"
        "import lpfloop.loop.cli.app\n"
        "print(*sys.modules)\n"
        f"for name in {names!r}: __import__(name)\n"
        "print(*sys.modules)\n"
    ).splitlines()
    assert {name for name in before.split() if name.startswith("lpfloop")} == {"lpfloop"}
    light = {"polars", "pyarrow", "numpy", "pydantic", "rich", "typer", "torch"}
    assert not light & set(before.split())
    assert not {*HEAVY, "polars", "pyarrow", "openai", "numpy", "pandas"} & set(cli.split())
    assert not set(HEAVY) & set(after.split())


def test_the_version_is_the_projects(root) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    assert lpfloop.__version__ == project["version"]


@pytest.fixture(scope="module")
def built(root, tmp_path_factory) -> tuple[set[str], set[str]]:
    """The files of the wheel and of the sdist, below `lpfloop/` and the sdist's own folder."""
    folder = tmp_path_factory.mktemp("dist")
    tracked = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        check=False,
        cwd=root,
    )
    if tracked.returncode:
        pytest.skip("no git checkout")
    copy = folder / "a-checkout"
    for name in filter(None, tracked.stdout.decode().split("\0")):
        if (root / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes((root / name).read_bytes())
    (copy / ".venv" / "lib").mkdir(parents=True)
    (copy / ".venv" / "lib" / "stray.py").write_text("", encoding="utf-8")
    for kind in ("sdist", "wheel"):
        code = f"from setuptools import build_meta as b; b.build_{kind}({str(folder)!r})"
        subprocess.run([sys.executable, "-c", code], check=True, cwd=copy, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    (sdist,) = folder.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = {n for n in archive.namelist() if not n.endswith("/")}
    with tarfile.open(sdist) as archive:
        in_sdist = {m.name.partition("/")[2] for m in archive.getmembers() if m.isfile()}
    return in_wheel, in_sdist


def test_wheel_and_sdist_hold_the_package(root, built) -> None:
    in_wheel, in_sdist = built
    tops = {name.partition("/")[0] for name in in_wheel}
    assert tops == {"lpfloop", f"lpfloop-{lpfloop.__version__}.dist-info"}
    tree = {name.removeprefix("lpfloop/") for name in in_wheel if name.startswith("lpfloop/")}
    stray = ("tests", "benchmarks", "docs", ".venv", "build", ".ci", "README", "LICENSE")
    assert not [name for name in tree | in_sdist if name.startswith(stray[:6])]
    assert not [name for name in tree if name.startswith(stray)]
    assert tree <= in_sdist
    kinds = (
        ".py",
        ".yaml",
        ".txt",
        ".json",
        ".jinja",
        ".safetensors",
        ".md",
        ".html",
        ".css",
        ".js",
    )
    data = [path for floor in FLOORS for path in (root / floor).glob("**/*")]
    shipped = {str(path.relative_to(root)) for path in data if path.suffix in kinds}
    assert {"py.typed", "locks/cpu.txt", *shipped} <= tree
