"""Every preset runs with the command in its header: questions, models, number of requests."""

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml

from lpfloop.configs.read import preset_file
from lpfloop.configs.schema import PRESETS, RunConfig
from lpfloop.loop.daemon.plan import plan_of
from lpfloop.loop.daemon.rehearsal import rehearse
from lpfloop.loop.daemon.run_request import RunOptions
from lpfloop.loop.data.prompts import load_prompts
from lpfloop.loop.recipes import RECIPES
from lpfloop.loop.run.completers import POOLS
from lpfloop.loop.stages.people_labels import labels_of

COMMAND = re.compile(r"lpfloop run .*?[^\\]$", re.DOTALL | re.MULTILINE)
TRAIN, HELD_OUT = "Tell me about the number {}.", "What is the number {} of the others?"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadCommand:
    """A command from the header of a preset, for one recipe."""

    text: str
    world: str
    recipe: str

    def options(self, named: dict[str, str]) -> RunOptions:
        """Return the options of the command; `named` maps its placeholders to models."""
        words = shlex.split(self.text)[2:]
        said, settings = dict[str, str](), list[str]()
        for option, value in zip(words[::2], words[1::2], strict=True):
            if option == "--set":
                path, _, place = value.partition("=")
                settings.append(f"{path}={named.get(place, place)}")
            else:
                said[option.removeprefix("--")] = named.get(value, value)
        said.pop("recipes", None)
        options = RunOptions(**{**said, "settings": tuple(settings)})
        return replace(options, recipe=self.recipe, config=options.config or self.world)


def head_command(world: str, recipe: str) -> HeadCommand:
    """Return the command in the header of a recipe's preset, or of the next preset it extends."""
    path = preset_file(world, recipe)
    while True:
        text = path.read_text(encoding="utf-8")
        if found := COMMAND.search("\n".join(_head(text))):
            command = " ".join(found[0].replace("\\\n", " ").split())
            return HeadCommand(text=command, world=world, recipe=recipe)
        path = PRESETS / world / f"{yaml.safe_load(text)['extends']}.yaml"


def _head(text: str) -> Iterator[str]:
    """Return the comment at the beginning of a file, without its marks."""
    for line in text.splitlines():
        if not line.startswith("#"):
            return
        yield line.removeprefix("#").strip()


def write_files(folder: Path, count: int, held_out: int) -> None:
    """Write the files named in headers, with prompts of three tasks."""
    rows = [_row(number) for number in range(count)]
    asked = [{"prompt": HELD_OUT.format(n)} for n in range(held_out)]
    outputs = [
        {"instruction": row["prompt"], "output": "It is a number.", "generator": "other"}
        for row in asked
    ]
    probes = [{"prompt": f"Say {n}.", "probe": "say", "checks": [_contains(n)]} for n in range(4)]
    files = {
        "prompts.jsonl": rows,
        "evaluation.jsonl": asked,
        "reference.json": outputs,
        "probes.jsonl": probes,
        "preferences.jsonl": [
            {"prompt": f"Take {n} and 1.", "chosen": str(n + 1), "rejected": str(n)}
            for n in range(8)
        ],
        "demonstrations.jsonl": [
            {"prompt": f"Add {n} and 1.", "output": str(n + 1)} for n in range(4)
        ],
    }
    for name, lines in files.items():
        (folder / name).write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def write_pool(folder: Path, url: str, served: str | None = None) -> None:
    """Write the pool file with the URL and the served name of each of UltraFeedback's models."""
    shipped = yaml.safe_load((POOLS.folder / "ultrafeedback.yaml").read_text())["models"]
    models = [
        {"name": model["name"], "model": url, "engine": {"model_name": served or model["name"]}}
        for model in shipped
    ]
    (folder / "pool.yaml").write_text(
        yaml.safe_dump({"extends": "ultrafeedback", "models": models})
    )


def _row(number: int) -> dict[str, object]:
    return {"prompt": TRAIN.format(number), "output": f"It is {number}."}


def _contains(number: int) -> dict[str, str]:
    return {"kind": "contains", "argument": str(number)}


WORLDS = ("paper", "own")
EVERY = [(world, recipe) for world in WORLDS for recipe in RECIPES]
URL = "http://127.0.0.1:9/v1"


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """A folder with the files named in headers, as the current folder."""
    write_files(tmp_path, count=40, held_out=4)
    write_pool(tmp_path, URL)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def named(tiny_policy: Path, tiny_reward: Path) -> dict[str, str]:
    """Return a model for each placeholder in headers."""
    policies = ("MODEL_FOLDER", "LLAMA_FOLDER", "M0_FOLDER", "SFT_FOLDER", "ULTRALM_FOLDER")
    others = {"REWARD_FOLDER": str(tiny_reward), "URL": URL}
    return {**dict.fromkeys(policies, str(tiny_policy)), **others}


def configured(command: HeadCommand, named: dict[str, str]) -> RunConfig:
    return command.options(named).resolve()


@pytest.mark.parametrize(("world", "recipe"), EVERY)
def test_head_gets_to_its_end(here, named, world, recipe):
    """With fake models and a fake trainer: every stage of the run, on its input files.

    The shipped toy models play no role, and no role lacks a model.
    """
    config = configured(head_command(world, recipe), named)
    prompts = load_prompts(config.prompts, seed=config.seed)
    plan = plan_of(rehearse(config, prompts, labels=labels_of(config, here)), prompts)
    assert plan.ends is None
    assert "tiny" not in {role.model for role in plan.roles}
    assert {stage.iteration for stage in plan.stages} == set(range(config.iterations + 1))
    assert plan.totals["calls"]
