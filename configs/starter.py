"""The file with which a run of one's own begins: few settings, each with what the schema says."""

import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from .describe import ConfigField, every_field
from .read import EXTENDS
from .rendering import flow, set_fields
from .schema import RunConfig
from .section import Section

WIDTH = 96
SHOWN = (
    *("iterations", "seed", "recipe.name", "recipe.n", "recipe.m", "recipe.top_k"),
    *("prompts.source", "policy.model", "policy.sampling.temperature"),
    *("policy.sampling.max_tokens", "critic.model"),
)
"""What a beginner looks at first."""
SUGGESTED: Mapping[str, object] = {
    "prompts.held_out": "FILE",
    "reward.model": "FOLDER",
    "training.lora.r": 16,
    "budget.hours": 8,
    "tracking.to": ["tensorboard"],
}
"""What is written behind a `#`, with an example of a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Leaf:
    """A line of the file: its field's path, its value as YAML, and if it is in force."""

    path: str
    value: str
    set_here: bool


def starter(config: RunConfig, preset: str, file: str, chosen: Sequence[str] = ()) -> str:
    """Return the YAML of a file that makes `config` of a preset; `chosen` fields are shown, too."""
    values = {field.path: field.value for field in set_fields(config, every=True)}
    shown = [path for path in dict.fromkeys((*SHOWN, *chosen)) if path in values]
    leaves = [_Leaf(path=path, value=flow(values[path]), set_here=True) for path in shown]
    leaves += [
        _Leaf(path=path, value=flow(value), set_here=False)
        for path, value in SUGGESTED.items()
        if path not in shown
    ]
    told = _told(config.recipe.name)
    lines = [*_head(preset, file), f"{EXTENDS}: {preset}", *_section("", leaves, told, config)]
    return "\n".join(lines) + "\n"


def _head(preset: str, file: str) -> Iterator[str]:
    written = shlex.quote(file)
    yield f"# A run of lpfloop: `lpfloop run --config {written}`."
    yield f"# What is not set here is as the preset `{preset}` has it; to see all of it:"
    yield f"#   lpfloop config show --config {written} --defaults"
    yield "# Lines behind a # are suggestions. Every field that can be set, with its meaning:"
    yield "#   lpfloop config schema"


def _told(recipe: str) -> Mapping[str, ConfigField]:
    """Return the fields by path, those of a recipe as this recipe has them."""
    return {f.path: f for f in every_field() if f.recipe in ("", recipe)}


def _section(
    prefix: str, leaves: Sequence[_Leaf], told: Mapping[str, ConfigField], of: Section
) -> Iterator[str]:
    """Yield the lines of a section, those of sections within it after its own."""
    names = dict.fromkeys(leaf.path.removeprefix(prefix).partition(".")[0] for leaf in leaves)
    for name in sorted(names, key=lambda n: any(_within(f"{prefix}{n}.", leaves))):
        path = f"{prefix}{name}"
        inner = list(_within(f"{path}.", leaves))
        if not inner:
            leaf = next(leaf for leaf in leaves if leaf.path == path)
            yield from _comment(told[path].description)
            yield f"{'' if leaf.set_here else '# '}{name}: {leaf.value}"
            continue
        section = getattr(of, name)
        idle = not any(leaf.set_here for leaf in inner)
        if idle:  # The whole section is behind a #, so its lines are not once more.
            inner = [replace(leaf, set_here=True) for leaf in inner]
        lines = [f"{name}:", *(f"  {line}" for line in _section(f"{path}.", inner, told, section))]
        if not prefix:
            yield ""
            yield from _comment((type(section).__doc__ or "").partition("\n")[0])
        yield from (f"# {line}" if idle else line for line in lines)


def _within(prefix: str, leaves: Sequence[_Leaf]) -> Iterator[_Leaf]:
    return (leaf for leaf in leaves if leaf.path.startswith(prefix))


def _comment(text: str) -> Iterator[str]:
    yield from textwrap.wrap(text, WIDTH, initial_indent="# ", subsequent_indent="# ")
