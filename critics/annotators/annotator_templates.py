"""What an annotator's prompt is made of: a set of templates, worked examples, a persona.

A set is a folder of text files. `frame.txt` is the whole prompt around `{pairs}`; `pair.txt` shows
one pair, `pair_input.txt` one whose instruction comes with an input; `example.txt` frames worked
examples and their reply; `system.txt`, where there is one, goes ahead as the system's message. What
the reply must look like (`{form}`) is not the set's to say: it comes from `forms/`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal, cast

from ...configs.read import parse_yaml
from ...configs.section import Section
from ...stores.keys import Json
from ..templating import (
    defused,
    load_template,
    placeholders,
    render,
    tags,
    templates_in,
)

Form = Literal["token", "json", "ranking"]
"""How a verdict is written: the better output's number alone, an object with an explanation, or
both numbers in order."""

HERE = Path(__file__).parent
TEMPLATES = HERE / "templates"

PAIR = frozenset({"instruction", "first", "second"})
REQUIRED: dict[str, frozenset[str]] = {
    "frame": frozenset({"pairs", "form"}),
    "pair": PAIR,
    "pair_input": PAIR | {"input"},
}
OPTIONAL: dict[str, frozenset[str]] = {
    "frame": frozenset({"examples", "persona"}),
    "pair": frozenset({"number"}),
    "pair_input": frozenset({"number"}),
}
EXTRA: dict[str, frozenset[str]] = {
    "example": frozenset({"pairs", "reply"}),
    "system": frozenset({"persona"}),
}
"""Files that a set may lack, and what they may show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateSet:
    """The texts of one set; `example` and `system` are None where the set has none."""

    frame: str
    pair: str
    pair_input: str
    example: str | None
    system: str | None

    @property
    def tags(self) -> frozenset[str]:
        """The names of the tags that these templates put around texts."""
        return tags(*self.texts)

    @property
    def texts(self) -> tuple[str | None, ...]:
        """All texts, in a fixed order."""
        return (self.frame, self.pair, self.pair_input, self.example, self.system)

    def shows(self, name: str) -> bool:
        """Whether the placeholder `name` stands in the frame or in the system's message."""
        return name in placeholders(f"{self.frame}{self.system or ''}")

    @property
    def numbers_pairs(self) -> bool:
        """Whether pairs are shown with their numbers."""
        return all("number" in placeholders(text) for text in (self.pair, self.pair_input))

    def defused(self, text: str) -> str:
        """Return `text` with the set's own tags broken, so that it can not end its part early."""
        return defused(text, self.tags)

    def shown(self, values: Mapping[str, str]) -> str:
        """Return one pair as the prompt shows it; with an `input`, if `values` has one."""
        safe = {name: self.defused(value) for name, value in values.items()}
        return render(self.pair_input if "input" in values else self.pair, safe)


class Example(Section):
    """A worked example: a pair, the better of its outputs, and why."""

    instruction: str
    input: str | None = None
    first: str
    second: str
    preferred: Literal["first", "second"]
    explanation: str

    def as_json(self) -> Json:
        """Return all of it as plain data, to be hashed."""
        return self.model_dump(mode="json")


def shipped_sets() -> tuple[str, ...]:
    """Return the names of the template sets that come with the package."""
    return tuple(sorted(path.name for path in TEMPLATES.iterdir() if path.is_dir()))


def load_set(name_or_folder: str, beside: Path) -> TemplateSet:
    """Read a shipped set by its name, or a folder; a relative one lies in the folder `beside`.

    Raises:
        ConfigError: if it is none, a file of it is missing or unknown, or a placeholder is; names
            the file.
    """
    is_shipped = name_or_folder in shipped_sets()
    folder = TEMPLATES / name_or_folder if is_shipped else beside / name_or_folder
    found = templates_in(folder, (*REQUIRED, *EXTRA), shipped_sets())
    whole = {name: _template(name, folder / f"{name}.txt") for name in REQUIRED}
    more = {name: _template(name, found[name]) if name in found else None for name in EXTRA}
    return TemplateSet(
        frame=whole["frame"],
        pair=whole["pair"],
        pair_input=whole["pair_input"],
        example=more["example"],
        system=more["system"],
    )


@lru_cache
def form_text(form: Form, *, several: bool) -> str:
    """Return what tells the annotator how to write its reply, about one pair or several."""
    return load_template(HERE / "forms" / f"{form}_{'many' if several else 'one'}.txt")


@lru_cache
def persona_text(persona: Literal["long", "short"]) -> str:
    """Return what gives an annotator a taste for long, or for short outputs."""
    return load_template(HERE / "personas" / f"{persona}.txt")


@lru_cache
def shipped_examples(*, with_input: bool) -> tuple[Example, ...]:
    """Return the worked examples, those with an input or those without."""
    path = HERE / "examples" / ("with_input.yaml" if with_input else "without_input.yaml")
    document = parse_yaml(path.read_text(encoding="utf-8"))
    return tuple(Example.model_validate(row) for row in cast("list[object]", document))


def _template(name: str, path: Path) -> str:
    required = REQUIRED.get(name, EXTRA["example"] if name == "example" else frozenset[str]())
    return load_template(path, required, OPTIONAL.get(name, EXTRA.get(name, frozenset[str]())))
