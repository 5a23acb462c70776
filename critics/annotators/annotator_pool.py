"""Pools of annotators, from YAML: the model, the templates and the sampling of each.

A file (`configs.pools`) lists `annotators`, each with a `name` and the fields of `Profile`. Two
pools have AlpacaFarm's thirteen annotators (Appendix C.1): `alpacafarm`, and `alpacafarm-hosted`
without token biases, for endpoints. `chatglm` has ChatGLM-RLHF's guideline (Section 3.2),
`chatglm-zh` the same in Chinese.

An annotator's set of templates is a folder of text files. `frame.txt` is the whole prompt around
`{pairs}`; `pair.txt` shows one pair, `pair_input.txt` one whose instruction comes with an input;
`example.txt` frames worked examples and their reply; `system.txt`, if present, is the system
message. The instructions for writing the reply (`{form}`) come from `form.txt`, if present, else
from `forms/`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import Field

from ...configs.annotation import Role
from ...configs.pools import Pools, read_yaml
from ...configs.schema import ConfigError
from ...configs.section import Section
from ...stores.keys import Json, digest
from ..guard import TemplateSets, load_template, placeholders
from .pair_verdicts import MOST_PAIRS, ReplyForm

HERE = Path(__file__).parent
POOLS = Pools(folder=HERE / "pools", item="annotator")
Persona = Literal["long", "short"]
PAIR, NUMBER = frozenset({"instruction", "first", "second"}), frozenset({"number"})
FORM = "form"
FEW_TOKENS = 5
"""An annotator that may write fewer tokens writes only the verdict."""
PAIR_TEMPLATES = TemplateSets(
    folder=HERE / "templates",
    files={
        "frame": (frozenset({"pairs", "form"}), frozenset({"examples", "persona"})),
        "pair": (PAIR, NUMBER),
        "pair_input": (PAIR | {"input"}, NUMBER),
        "example": (frozenset({"pairs", "reply"}), frozenset()),
        "system": (frozenset(), frozenset({"persona"})),
        FORM: (frozenset(), frozenset()),
    },
    spare=("example", "system", FORM),
)


class WorkedExample(Section):
    """A pair, the better of its outputs, and why."""

    instruction: str
    input: str | None = None
    first: str
    second: str
    preferred: Literal["first", "second"]
    explanation: str


class Profile(Section):
    """The fields of an annotator in a pool's file; `model` names its model.

    A prompt shows at most `batch_size` pairs and begins with `examples` worked ones. `logit_bias`
    raises or lowers the logits of tokens, named by their ids or by their texts. With `ties` the
    annotator may prefer neither output.
    """

    name: str = Field(min_length=1, max_length=80)
    model: Role
    batch_size: int = Field(1, ge=1, le=MOST_PAIRS, strict=True)
    temperature: float = Field(1.0, ge=0, le=5)
    top_p: float = Field(1.0, gt=0, le=1)
    max_tokens: int = Field(ge=1, strict=True)
    logit_bias: tuple[tuple[int | str, Annotated[float, Field(ge=-100, le=100)]], ...] = ()
    template: str = Field(min_length=1)
    form: ReplyForm
    examples: int = Field(0, ge=0, strict=True)
    persona: Persona | None = None
    ties: bool = Field(default=False, strict=True)


class Annotator(Profile):
    """A prompted model: its profile, with the texts of its set of templates."""

    templates: dict[str, str]

    @property
    def short(self) -> bool:
        """Whether its replies are a few tokens, or biased ones: no room for a line ahead."""
        return self.max_tokens < FEW_TOKENS or bool(self.logit_bias)

    @property
    def several(self) -> bool:
        """Whether its prompts and replies are about several pairs."""
        return self.batch_size > 1

    def worked_examples(self, *, with_input: bool) -> tuple[WorkedExample, ...]:
        """Return its worked examples, either all with an input or all without."""
        return shipped_examples(with_input=with_input)[: self.examples]

    @property
    def form_text(self) -> str:
        """The instructions for writing its reply."""
        if FORM in self.templates:
            return self.templates[FORM]
        tie = load_template(HERE / "forms" / f"{self.form}_tie.txt") if self.ties else ""
        return form_text(self.form, several=self.several) + tie

    @property
    def digest(self) -> str:
        """Return the hash of all that shapes its prompts and how they are answered."""
        worked = (*self.worked_examples(with_input=False), *self.worked_examples(with_input=True))
        shown: list[Json] = [example.model_dump(mode="json") for example in worked]
        content: list[Json] = [self.name, self.model, self.form, self.batch_size, self.ties]
        drawn: list[Json] = [self.temperature, self.top_p, self.max_tokens, self.logit_bias]
        templates = [self.templates.get(name) for name in PAIR_TEMPLATES.files if name != FORM]
        form = self.templates.get(FORM) or form_text(self.form, several=self.several)
        persona = persona_text(self.persona) if self.persona else ""
        return digest([content, drawn, shown, templates, form, persona])


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotatorPool:
    """A pool of annotators, each drawn with the same probability."""

    name: str
    annotators: tuple[Annotator, ...]

    @property
    def roles(self) -> tuple[Role, ...]:
        """The models that its annotators need."""
        return tuple(sorted({annotator.model for annotator in self.annotators}))

    @property
    def digest(self) -> str:
        """Return the hash of its annotators."""
        return digest([annotator.digest for annotator in self.annotators])

    def only(self, name: str) -> "AnnotatorPool":
        """Return the pool of this one annotator at temperature 0 (p_single, Appendix C.1).

        Raises:
            ConfigError: if the name is not in the pool.
        """
        found = [annotator for annotator in self.annotators if annotator.name == name]
        if not found:
            names = ", ".join(annotator.name for annotator in self.annotators)
            raise ConfigError(f"annotator {name!r} is not in the pool {self.name}; it has {names}")
        return replace(self, annotators=(found[0].model_copy(update={"temperature": 0.0}),))


def load_pool(name_or_path: str) -> AnnotatorPool:
    """Read a shipped pool by its name, or a YAML file by its path.

    Raises:
        ConfigError: if the file is missing or is not a list of whole annotators; names the file and
            the line or the field.
    """
    path = POOLS.place(name_or_path)
    entries = POOLS.entries(path).items()
    annotators = tuple(_annotator(path, name, entry) for name, entry in entries)
    return AnnotatorPool(name=path.stem, annotators=annotators)


@lru_cache
def form_text(form: ReplyForm, *, several: bool) -> str:
    """Return the instructions for writing a reply, about one pair or several."""
    return load_template(HERE / "forms" / f"{form}_{'many' if several else 'one'}.txt")


@lru_cache
def persona_text(persona: Persona) -> str:
    """Return the text that gives an annotator a taste for long, or for short outputs."""
    return load_template(HERE / "personas" / f"{persona}.txt")


@lru_cache
def shipped_examples(*, with_input: bool) -> tuple[WorkedExample, ...]:
    """Return the worked examples, either all with an input or all without."""
    path = HERE / "examples" / ("with_input.yaml" if with_input else "without_input.yaml")
    rows = cast("list[object]", read_yaml(path, missing="no worked examples can be read"))
    return tuple(WorkedExample.model_validate(row) for row in rows)


def _annotator(path: Path, name: str, entry: dict[str, Any]) -> Annotator:
    """Return the annotator that an entry of a pool's file describes."""
    profile = POOLS.as_section(path, name, entry, Profile)
    templates = PAIR_TEMPLATES.load(profile.template, path.parent)
    if fault := _fault(profile, templates):
        raise ConfigError(f"{path}: annotator {profile.name!r}: {fault}")
    return Annotator(**profile.model_dump(), templates=templates)


def _fault(profile: Profile, templates: Mapping[str, str]) -> str | None:
    """Return a setting of a profile that its templates cannot show, as text; None if they can."""
    template = f"its template {profile.template!r}"
    shown = placeholders(templates["frame"], templates.get("system", ""))
    for file, name in ((profile.examples, "examples"), (profile.persona, "persona")):
        if file and name not in shown:
            return f"{template} has no {{{name}}}"
    if profile.examples and "example" not in templates:
        return f"{template} lacks example.txt"
    numbered = placeholders(templates["pair"]) & placeholders(templates["pair_input"]) & NUMBER
    if profile.batch_size > 1 and not numbered:
        return f"{template} shows no {{number}}, so that batch_size must be 1"
    most = min(len(shipped_examples(with_input=with_input)) for with_input in (False, True))
    if profile.examples > most:
        return f"examples must be at most {most}, not {profile.examples}"
    return None
