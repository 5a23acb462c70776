"""Forms by which a judge scores single answers: Just-Eval, AlignBench, or the user's YAML file.

A form has a scale from 1 to `best`, `aspects` with their meanings, and the `template` of the
question. `kinds` map a prompt's task, family, source or eval set to its aspects. `totals` are means
of the means of categories, which prompts name as their family.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Self, cast

from pydantic import Field, StringConstraints, ValidationError, model_validator

from ...configs.pools import Pools, fault, read_yaml
from ...configs.schema import ConfigError
from ...configs.section import Section
from ...stores.keys import digest
from ...stores.records import Prompt
from ..grading.grade_reply import GradeScale
from ..templating import placeholders

FORMS = Pools(folder=Path(__file__).parent / "forms", item="form")
NEEDED, MAY_HAVE = frozenset({"instruction", "answer", "aspects", "form"}), frozenset({"reference"})

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Key = Annotated[Text, Field(pattern=r"^[^{}\"'\\:\n\r]*$")]
"""A key of the object in a reply."""
AspectName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]


class ScoredAspect(Section):
    """The meaning of an aspect; `key` is its name in a reply, if that differs."""

    says: Text
    key: Key | None = None


class ScoredKind(Section):
    """The aspects of prompts whose task, family, source or eval set is in `of`; empty: all."""

    of: tuple[Text, ...] = ()
    aspects: tuple[AspectName, ...] = Field(min_length=1)


class AnswerForm(Section):
    """A form as its file has it; its name prefixes the names of its scores: `just-eval:depth`."""

    name: str
    best: int = Field(ge=2, le=100)
    may_not_apply: bool = False
    aspects: dict[AspectName, ScoredAspect] = Field(min_length=1)
    kinds: tuple[ScoredKind, ...] = ()
    mean: tuple[AspectName, ...] = ()
    total: AspectName | None = None
    totals: dict[AspectName, tuple[tuple[Text, ...], ...]] = Field(default_factory=dict)
    template: Text

    @model_validator(mode="after")
    def _whole(self) -> Self:
        there = placeholders(self.template)
        if missing := NEEDED - there:
            raise ValueError(f"the template lacks {{{min(missing)}}}")
        if unknown := there - NEEDED - MAY_HAVE:
            raise ValueError(f"the template has the unknown placeholder {{{min(unknown)}}}")
        named = {*self.mean, *(n for kind in self.kinds for n in kind.aspects)}
        if unknown := {*named, *filter(None, (self.total,))} - {*self.aspects}:
            raise ValueError(f"{min(unknown)!r} is not one of its aspects")
        if self.totals and self.total is None:
            raise ValueError("totals need a total: the aspect whose means they are of")
        return self

    @property
    def digest(self) -> str:
        """The hash of all that shapes its questions, and how they are read."""
        return digest(self.model_dump(mode="json", exclude={"name", "mean", "total", "totals"}))

    @property
    def summed(self) -> str:
        """The hash of the totals into which scores are summed up."""
        return digest(self.model_dump(mode="json", include={"mean", "total", "totals"}))

    @property
    def scale(self) -> GradeScale:
        """From 1 to the best."""
        return GradeScale(best=self.best, may_not_apply=self.may_not_apply)

    @property
    def needs_reference(self) -> bool:
        """Whether answers are compared with the prompt's reference."""
        return "reference" in placeholders(self.template)

    def lacks_reference(self, prompt: Prompt) -> bool:
        """Whether an answer cannot be scored since its prompt lacks the reference for the form."""
        there = prompt.reference is not None and bool(prompt.reference.strip())
        return self.needs_reference and not there

    def aspects_of(self, prompt: Prompt) -> tuple[str, ...]:
        """Return the names of the aspects that answers to a prompt are scored in."""
        called = (prompt.task, prompt.family, prompt.source, prompt.eval_set)
        for name in filter(None, called):
            for kind in self.kinds:
                if name in kind.of:
                    return kind.aspects
        usual = (kind.aspects for kind in self.kinds if not kind.of)
        return next(usual, tuple(self.aspects))

    def key_of(self, aspect: str) -> str:
        """Return the name of an aspect in a reply."""
        return self.aspects[aspect].key or aspect

    def metric(self, aspect: str) -> str:
        """Return the name of an aspect's scores in the lake."""
        return f"{self.name}:{aspect}"

    def categories(self) -> Iterator[str]:
        """Give the names of the categories that its totals are made of."""
        for groups in self.totals.values():
            for group in groups:
                yield from group


def load_form(name_or_path: str) -> AnswerForm:
    """Read a shipped form by its name, or a YAML file by its path.

    Raises:
        ConfigError: if the file is missing or is not a form; names the file and the field.
    """
    path = FORMS.place(name_or_path)
    hint = f"; shipped are {', '.join(FORMS.shipped_names())}"
    document = read_yaml(path, missing="no form of scores can be read", hint=hint)
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: must be a mapping of fields, such as best and aspects")
    fields = cast("dict[str, object]", document)
    if "name" in fields:
        raise ConfigError(f"{path}: unknown field 'name': a form is named by its file")
    try:
        return AnswerForm.model_validate({"name": path.stem, **fields})
    except ValidationError as error:
        raise ConfigError(f"{path}: {fault(error, AnswerForm)}") from error


Forms = Mapping[str, AnswerForm]
"""Forms by their names."""
