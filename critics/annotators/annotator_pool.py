"""Pools of annotators, from YAML: which model each is made of, and how it is asked.

A file (`configs.pools`) lists `annotators`, each with a `name` and the fields of `Profile`. Two
pools have the paper's thirteen (Appendix C.1): `alpacafarm`, and `alpacafarm-hosted`, without
biases of tokens, for endpoints.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from ...configs.annotation import Role
from ...configs.pools import Pools, fault
from ...configs.schema import ConfigError
from ...configs.section import Section
from ...stores.keys import Json, digest
from .annotator_templates import (
    Example,
    Form,
    TemplateSet,
    form_text,
    load_set,
    persona_text,
    shipped_examples,
)

POOLS = Pools(folder=Path(__file__).parent / "pools", item="annotator")
MOST_PAIRS = 20
"""Pairs that one prompt may hold (Appendix C.1: up to 20 do as well as 5)."""


class Profile(Section):
    """One annotator as a pool's file describes it."""

    name: str = Field(min_length=1, max_length=80)
    model: Role
    template: str = Field(min_length=1)
    form: Form
    batch_size: int = Field(1, ge=1, le=MOST_PAIRS, strict=True)
    examples: int = Field(0, ge=0, strict=True)
    temperature: float = Field(1.0, ge=0, le=5)
    top_p: float = Field(1.0, gt=0, le=1)
    max_tokens: int = Field(ge=1, strict=True)
    logit_bias: tuple[tuple[int | str, Annotated[float, Field(ge=-100, le=100)]], ...] = ()
    persona: Literal["long", "short"] | None = None
    ties: bool = Field(default=False, strict=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotator:
    """A prompted model: `role` names the model, the rest how it is asked.

    `batch_size` pairs at most stand in one prompt. `logit_bias` raises or lowers the logits of
    tokens, named by their ids or by their texts. `examples` are worked ones, those without an input
    and those with. `ties` says whether an annotator may prefer neither.
    """

    name: str
    role: Role
    templates: TemplateSet
    form: Form
    batch_size: int
    examples: tuple[Example, ...]
    examples_input: tuple[Example, ...]
    temperature: float
    top_p: float
    max_tokens: int
    logit_bias: tuple[tuple[int | str, float], ...]
    persona: str
    ties: bool

    @property
    def several(self) -> bool:
        """Whether its prompts and replies are those about several pairs."""
        return self.batch_size > 1

    @property
    def digest(self) -> str:
        """Return the hash of all that shapes its prompts and how they are answered."""
        examples = [example.as_json() for example in (*self.examples, *self.examples_input)]
        asked: list[Json] = [self.name, self.role, self.form, self.batch_size, self.ties]
        drawn: list[Json] = [self.temperature, self.top_p, self.max_tokens, self.logit_bias]
        form = form_text(self.form, several=self.several)
        return digest([asked, drawn, examples, self.templates.texts, form, self.persona])


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Annotators that verdicts are asked of, each as likely as any other."""

    name: str
    annotators: tuple[Annotator, ...]

    @property
    def roles(self) -> tuple[Role, ...]:
        """The models that its annotators need."""
        return tuple(sorted({annotator.role for annotator in self.annotators}))

    @property
    def digest(self) -> str:
        """Return the hash of its annotators."""
        return digest([annotator.digest for annotator in self.annotators])

    def only(self, name: str) -> "Pool":
        """Return the pool of this one annotator at temperature 0 (p_single, Appendix C.1).

        Raises:
            ConfigError: if the pool has none of this name.
        """
        found = [annotator for annotator in self.annotators if annotator.name == name]
        if not found:
            names = ", ".join(annotator.name for annotator in self.annotators)
            raise ConfigError(f"the pool {self.name} has no annotator {name!r}; it has {names}")
        return replace(self, annotators=(replace(found[0], temperature=0.0),))


def shipped_pools() -> tuple[str, ...]:
    """Return the names of the pools that come with the package."""
    return POOLS.shipped()


def load_pool(name_or_path: str) -> Pool:
    """Read a shipped pool by its name, or a YAML file by its path.

    Raises:
        ConfigError: if there is no such file, or it is no list of whole annotators; names the file
            and the line or the field.
    """
    path = POOLS.place(name_or_path)
    annotators = tuple(_annotator(entry, path) for entry in POOLS.entries(path).values())
    return Pool(name=path.stem, annotators=annotators)


def _annotator(entry: dict[str, Any], path: Path) -> Annotator:
    where = f"{path}: annotator {entry['name']!r}"
    try:
        profile = Profile.model_validate(entry)
    except ValidationError as error:
        raise ConfigError(f"{where}: {fault(error, Profile)}") from error
    templates = load_set(profile.template, path.parent)
    for wanted, name in ((profile.examples, "examples"), (profile.persona, "persona")):
        if wanted and not templates.shows(name):
            raise ConfigError(f"{where}: its template {profile.template!r} has no {{{name}}}")
    if profile.examples and templates.example is None:
        raise ConfigError(f"{where}: its template {profile.template!r} lacks example.txt")
    if profile.batch_size > 1 and not templates.numbers_pairs:
        raise ConfigError(
            f"{where}: its template {profile.template!r} shows no {{number}}, so that batch_size "
            "must be 1"
        )
    without, with_input = (shipped_examples(with_input=with_) for with_ in (False, True))
    most = min(len(without), len(with_input))
    if profile.examples > most:
        raise ConfigError(f"{where}: examples must be at most {most}, not {profile.examples}")
    return Annotator(
        name=profile.name,
        role=profile.model,
        templates=templates,
        form=profile.form,
        batch_size=profile.batch_size,
        examples=without[: profile.examples],
        examples_input=with_input[: profile.examples],
        temperature=profile.temperature,
        top_p=profile.top_p,
        max_tokens=profile.max_tokens,
        logit_bias=profile.logit_bias,
        persona=persona_text(profile.persona) if profile.persona else "",
        ties=profile.ties,
    )
