"""docs/gpus.md says what the arithmetic says, and its settings fit where it says they do."""

import re
from pathlib import Path

import pytest

from lpfloop.configs.load import load_config
from lpfloop.loop.daemon.fitting_table import CARDS, in_page, table_lines
from lpfloop.loop.daemon.hardware import Devices
from lpfloop.loop.daemon.memory_check import memory_of
from lpfloop.policies.memory.published_sizes import PUBLISHED
from lpfloop.policies.memory.shapes import ModelShape, configured
from lpfloop.policies.memory.verdicts import GIB

PAGE = (Path(__file__).parents[2] / "docs" / "gpus.md").read_text(encoding="utf-8")
FILE = re.compile(r"^```yaml\n# (?P<name>\S+\.yaml)\n(?P<body>.*?)^```", re.MULTILINE | re.DOTALL)
FILES = {match["name"]: match["body"] for match in FILE.finditer(PAGE)}
JUDGE = "http://judge/v1"
ANNOTATED = (
    *(f"annotation.{role}.model={JUDGE}" for role in ("strong", "medium", "weak")),
    "annotation.pool=alpacafarm-hosted",
)


def test_the_table_is_computed() -> None:
    assert in_page(PAGE, table_lines()) == PAGE


@pytest.mark.parametrize(
    ("name", "variant", "card", "count"),
    [
        ("one-24.yaml", "rlrf", "24", 1),
        ("one-80.yaml", "rlrf", "80", 1),
        ("one-80.yaml", "ppo", "80", 1),
        ("eight-80.yaml", "rlrf", "80", 8),
    ],
)
def test_a_shown_file_fits_an_8b_model_onto_its_cards(
    tmp_path: Path, name: str, variant: str, card: str, count: int
) -> None:
    file = tmp_path / name
    file.write_text(FILES[name], encoding="utf-8")
    critic = () if "https:" in FILES[name] else ("critic.engine.kind=vllm",)
    annotated = ANNOTATED if variant == "ppo" else ()
    given = ("policy.model=p", "policy.engine.kind=vllm", *critic, *annotated)
    config = load_config(str(file), variant, given, {})

    def sizes(_: Path) -> ModelShape:
        return configured(PUBLISHED["Llama-3.1-8B"])

    have = Devices(cards=(round(CARDS[card] * GIB),) * count, ram=512 * GIB)
    stages = memory_of(config, have=have, shapes=sizes).stages
    trained = "train by ppo" if variant == "ppo" else "train by dpo"
    assert trained in [stage.stage for stage in stages]
    assert [s.as_text() for s in stages if s.verdict in ("does not fit", "not known")] == []
    assert next(s for s in stages if s.stage == trained).verdict == "fits"
