"""Real data for the tests of critics; skipped with a reason where it is absent."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def shared_rows() -> Callable[[str], list[dict[str, Any]]]:
    folder = Path(os.environ.get("LPFLOOP_SHARED_DATA", ROOT.parent / "shared" / "data"))

    def read(name: str) -> list[dict[str, Any]]:
        path = folder / name
        if not path.is_file():
            pytest.skip(f"{path} is absent; LPFLOOP_SHARED_DATA may name its folder")
        if path.suffix == ".json":
            return json.loads(path.read_text(encoding="utf-8"))
        return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]

    return read
