"""The loaders of trainers that are not installed here: single modules of their unpacked wheels.

`TRAINER_WHEELS` names a folder into which the wheels were unpacked (`pip download --no-deps
llamafactory axolotl openrlhf`, then unzip); their packages' own __init__ modules, which want the
whole trainer, are not run.
"""

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

VARIABLE = "TRAINER_WHEELS"


def loader(name: str, *bare: str) -> ModuleType:
    """Import one module below packages that are not run; skip the test where it is not there."""
    root = _root(name.partition(".")[0])
    before = dict(sys.modules)
    for package in (*_parents(name), *bare):
        module = ModuleType(package)
        module.__path__ = [str(root.joinpath(*package.split(".")))]
        sys.modules[package] = module
    try:
        return importlib.import_module(name)
    finally:
        for extra in set(sys.modules) - set(before):
            if extra.partition(".")[0] == name.partition(".")[0]:
                del sys.modules[extra]


def _parents(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:n]) for n in range(1, len(parts))]


def _root(package: str) -> Path:
    unpacked = Path(os.environ.get(VARIABLE, "/nowhere"))
    found = next((path.parent for path in unpacked.glob(f"**/{package}/__init__.py")), None)
    if found is None:
        pytest.skip(f"{package} is not unpacked below {VARIABLE}")
    return found.parent
