"""The package as it is installed: light to import, whole, and writing durably in one place only."""

import ast
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from startup import times_libraries

import lpfloop

FLOORS = ("configs", "critics", "loop", "policies", "stores")
HEAVY = ("torch", "vllm", "transformers", "trl", "accelerate", "datasets", "lancedb")
GROUND = ("configs", "stores")
OTHER_WRITERS = (
    # What the user asked for, beside the lake, and can make again.
    "stores/outputs.py",
    # Drafts and work folders, thrown away, or published by stores/durable.py.
    "stores/derived.py",
    "policies/",
    # Into memory, a pipe, and to stdout.
    "loop/cli/child.py",
    "stores/sealing.py",
    "loop/lake/query/row_output.py",
    "loop/report/write_report.py",
    # The tiny world's models are built once and committed.
    "loop/tiny/",
)


def python(code: str) -> str:
    """Run `code` in a fresh interpreter, away from the checkout."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd="/"
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def modules(root: Path, *folders: str) -> list[str]:
    """Return the importable modules in these folders, those that train the tiny world left out."""
    paths = [
        path.relative_to(root) for folder in folders for path in root.glob(f"{folder}/**/*.py")
    ]
    kept = [path for path in paths if "tiny" not in path.parts]
    return sorted(".".join(["lpfloop", *path.with_suffix("").parts]) for path in kept)


def sources(root: Path) -> Iterator[Path]:
    """Give the package's source files."""
    packages = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"][
        "packages"
    ]
    for package in packages:
        yield from (root / Path(*package.split(".")[1:])).glob("*.py")


def test_every_package_is_installed(root) -> None:
    packages = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]
    found = {path.parent for floor in FLOORS for path in (root / floor).glob("**/__init__.py")}
    named = {root / Path(*name.split(".")[1:]) for name in packages["packages"]} - {root}
    assert named == found


# what an import loads


@pytest.mark.parametrize("floor", ["", "configs", "stores", "loop"])
def test_a_floor_loads_no_model_library(root, floor) -> None:
    names = ["lpfloop", *(modules(root, floor) if floor else [])]
    code = f"import sys\nfor n in {names!r}: __import__(n)\nprint(*sys.modules)"
    assert not set(HEAVY) & set(python(code).split())


def test_the_command_line_loads_little() -> None:
    loaded = python("import sys, lpfloop.loop.cli.app\nprint(*sys.modules)").split()
    assert not {*HEAVY, "polars", "pyarrow", "openai", "numpy", "pandas"} & set(loaded)


def test_importing_the_package_is_quick() -> None:
    assert times_libraries("import lpfloop") < 1


def test_help_answers_at_once() -> None:
    code = "import sys\nsys.argv = ['lpfloop', '--help']\nfrom lpfloop.loop.cli.app import main\n"
    assert "doctor" in python(f"{code}main()")
    assert times_libraries(f"{code}main()") < 6


def test_the_version_is_the_projects(root) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    assert lpfloop.__version__ == project["version"]


def test_the_core_is_enough_for_the_command_line(root) -> None:
    """Only the core's distributions and what they bring are importable; help still answers."""
    allowed = python(
        "import importlib.metadata as m, re\n"
        "todo, seen = ['lpfloop'], set()\n"
        "while todo:\n"
        "    name = todo.pop()\n"
        "    if name in seen: continue\n"
        "    seen.add(name)\n"
        "    try: wants = m.requires(name) or ()\n"
        "    except m.PackageNotFoundError: continue\n"
        "    todo += [re.match(r'[\\w.-]+', w)[0].lower() for w in wants if 'extra ==' not in w]\n"
        "tops = m.packages_distributions()\n"
        "norm = lambda n: re.sub(r'[-_.]+', '-', n).lower()\n"
        "core = {norm(n) for n in seen}\n"
        "print(*sorted(t for t, d in tops.items() if not {norm(x) for x in d} & core))"
    ).split()
    code = (
        "import sys\n"
        f"banned = set({allowed!r})\n"
        "class Ban:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in banned: raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Ban())\n"
        "sys.argv = ['lpfloop', '--help']\n"
        "from lpfloop.loop.cli.app import main\n"
        "try: main()\nexcept SystemExit as e: assert not e.code\n"
    )
    assert {"torch", "vllm"} <= set(allowed)
    assert "doctor" in python(code)


# what is shipped


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


def test_wheel_and_sdist_hold_the_package_and_nothing_else(root, built) -> None:
    in_wheel, in_sdist = built
    tops = {name.partition("/")[0] for name in in_wheel}
    assert tops == {"lpfloop", f"lpfloop-{lpfloop.__version__}.dist-info"}
    tree = {name.removeprefix("lpfloop/") for name in in_wheel if name.startswith("lpfloop/")}
    stray = ("tests", "benchmarks", "docs", ".venv", "build", ".ci", "README", "LICENSE")
    assert not [name for name in tree | in_sdist if name.startswith(stray[:6])]
    assert not [name for name in tree if name.startswith(stray)]
    assert tree <= in_sdist
    assert {str(path.relative_to(root)) for path in sources(root)} <= tree


def test_every_data_file_is_shipped(root, built) -> None:
    tree = {name.removeprefix("lpfloop/") for name in built[0]}
    kinds = {
        ".yaml",
        ".txt",
        ".json",
        ".jinja",
        ".safetensors",
        ".md",
        ".html",
        ".css",
        ".js",
        ".svg",
    }
    data = {
        str(path.relative_to(root))
        for folder in ("configs", "critics", "loop", "policies", "stores", "locks")
        for path in root.glob(f"{folder}/**/*")
        if path.suffix in kinds
    }
    assert {"py.typed", "locks/cpu.txt", *data} <= tree


# durable writes

WRITERS = {"write_text", "write_bytes", "write_table", "write_parquet", "sink_parquet", "rename"}


def writes(tree: ast.AST) -> Iterator[int]:
    """Give the lines that open a file for writing, or move one."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        name = node.func.id if isinstance(node.func, ast.Name) else name
        words = [a.value for a in node.args if isinstance(a, ast.Constant)]
        words += [k.value.value for k in node.keywords if isinstance(k.value, ast.Constant)]
        modes = [w for w in words if isinstance(w, str) and set(w) <= set("rwaxbt+")]
        opens = name in ("open", "fdopen") and any(set(mode) & set("wax+") for mode in modes)
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        moves = name == "replace" and isinstance(owner, ast.Name) and owner.id == "os"
        if opens or moves or name in WRITERS:
            yield node.lineno


def test_only_one_module_writes_durably(root) -> None:
    found = [
        f"{path.relative_to(root)}:{line}"
        for path in sources(root)
        if str(path.relative_to(root)) != "stores/durable.py"
        for line in writes(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert [place for place in found if not place.startswith(OTHER_WRITERS)] == []


@pytest.mark.parametrize(
    "code",
    ["open(p, 'w')", "p.open('ab')", "open(p, mode='x')", "os.replace(a, b)", "p.write_text(t)"],
)
def test_the_guard_sees_writes(code) -> None:
    assert list(writes(ast.parse(code))) == [1]


@pytest.mark.parametrize(
    "code", ["open(p)", "p.open('rb')", "s.replace('a', 'b')", "os.open(p, 0)"]
)
def test_the_guard_lets_reading_be(code) -> None:
    assert list(writes(ast.parse(code))) == []
