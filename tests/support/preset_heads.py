"""The commands in the heads of the shipped presets, and the files and models that they name."""

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from lpfloop.configs.read import preset_file
from lpfloop.configs.schema import PRESETS
from lpfloop.loop.daemon.run_request import RunOptions
from lpfloop.loop.run.model_pool import POOLS
from lpfloop.stores.records import Message, Prompt, Split

COMMAND = re.compile(r"lpfloop run .*?[^\\]$", re.DOTALL | re.MULTILINE)
PAPER_SIZES = {
    "alpacafarm": (52_000, 805),
    "chatglm": (100_000, 683),
    "grouped": (144_000, 0),
    "ultrafeedback": (63_967, 805),
}
"""Prompts and held-out prompts of the files that the heads of the paper's presets describe."""
TRAIN, HELD_OUT = "Tell me about the number {}.", "What is the number {} of the others?"
RLRF_SIZES = (80_000, 0)
OWN_SIZES = (10_000, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadCommand:
    """A command as it stands in the head of a preset, for one variant."""

    text: str
    world: str
    variant: str

    def options(self, named: dict[str, str]) -> RunOptions:
        """Return what the command says; `named` are models, by what stands for them in it."""
        words = shlex.split(self.text)[2:]
        said, settings = dict[str, str](), list[str]()
        for option, value in zip(words[::2], words[1::2], strict=True):
            if option == "--set":
                path, _, place = value.partition("=")
                settings.append(f"{path}={named.get(place, place)}")
            else:
                said[option.removeprefix("--")] = named.get(value, value)
        said.pop("variants", None)
        options = RunOptions(**{**said, "settings": tuple(settings)})
        return replace(options, variant=self.variant, config=options.config or self.world)


def head_command(world: str, variant: str) -> HeadCommand:
    """Return the command in the head of a variant's preset, or of the next one that it extends."""
    path = preset_file(world, variant)
    while True:
        text = path.read_text(encoding="utf-8")
        if found := COMMAND.search("\n".join(_head(text))):
            command = " ".join(found[0].replace("\\\n", " ").split())
            return HeadCommand(text=command, world=world, variant=variant)
        path = PRESETS / world / f"{yaml.safe_load(text)['extends']}.yaml"


def _head(text: str) -> Iterator[str]:
    """Give the comment that a file begins with, without its marks."""
    for line in text.splitlines():
        if not line.startswith("#"):
            return
        yield line.removeprefix("#").strip()


def sizes(world: str, variant: str) -> tuple[int, int]:
    """Return how many prompts and held-out prompts the files of a head hold."""
    family = preset_family(variant)
    return OWN_SIZES if world == "own" else PAPER_SIZES.get(family, RLRF_SIZES)


def preset_family(variant: str) -> str:
    """Return the name of the preset file whose settings a variant has."""
    from lpfloop.configs.variants import recipe_class

    return recipe_class(variant).preset


def write_files(folder: Path, count: int, held_out: int) -> None:
    """Write the files that heads name, with prompts of three tasks."""
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
    """Write the file that says where the models of UltraFeedback's pool are served, and as what."""
    shipped = yaml.safe_load((POOLS.folder / "ultrafeedback.yaml").read_text())["models"]
    models = [
        {"name": model["name"], "model": url, "engine": {"model_name": served or model["name"]}}
        for model in shipped
    ]
    (folder / "pool.yaml").write_text(
        yaml.safe_dump({"extends": "ultrafeedback", "models": models})
    )


def many_prompts(count: int, held_out: int, dev: int = 0) -> list[Prompt]:
    """Return prompts as a file of so many rows would give them."""
    texts: list[tuple[Split, str]] = [("train", TRAIN.format(n)) for n in range(count)]
    texts += [("held-out", HELD_OUT.format(n)) for n in range(held_out)]
    texts += [("dev", f"Say what follows from {n}.") for n in range(dev)]
    return [
        Prompt(
            prompt_id=f"p{number}",
            task="general",
            split=split,
            messages=(Message(role="user", content=text),),
            reference=None,
            checks=(),
            source="sharegpt",
        )
        for number, (split, text) in enumerate(texts)
    ]


def _row(number: int) -> dict[str, object]:
    return {"prompt": TRAIN.format(number), "output": f"It is {number}."}


def _contains(number: int) -> dict[str, str]:
    return {"kind": "contains", "argument": str(number)}
