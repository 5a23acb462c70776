"""Pools of annotators, from YAML: the model, the templates and the sampling of each.

A file (`configs.pools`) lists `annotators`, each with a `name` and the fields of `Profile`, or of
`PublishedProfile` if the annotator is shown a whole published prompt. Three pools have AlpacaFarm's
thirteen annotators (Appendix C.1): `alpacafarm`; `alpacafarm-hosted`, without token biases, for
endpoints; and `alpacafarm-original`, with the authors' prompts (`published/`). `chatglm` has
ChatGLM-RLHF's guideline (Section 3.2), `chatglm-zh` the same in Chinese.

An annotator's set of templates is a folder of text files. `frame.txt` is the whole prompt around
`{pairs}`; `pair.txt` shows one pair, `pair_input.txt` one whose instruction comes with an input;
`example.txt` frames worked examples and their reply; `system.txt`, if present, is the system
message. The instructions for writing the reply (`{form}`) come from `forms/`, in the annotator's
language.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, cast

from pydantic import Field, model_validator

from ...configs.annotation import Role
from ...configs.pools import Pools, read_yaml
from ...configs.schema import ConfigError
from ...configs.section import Section
from ...stores.keys import Json, digest
from ..templating import TemplateSets, load_template, placeholders, read_template
from ..text_forms import MOST_PAIRS, ReplyForm

HERE = Path(__file__).parent
POOLS = Pools(folder=HERE / "pools", item="annotator")
PUBLISHED = HERE / "published"
PLACES: Mapping[str, tuple[str, ...]] = {
    "with_inputs": ("{instruction}", "{input}", "{output_1}", "{output_2}"),
    "without_inputs": ("{instruction}", "{output_1}", "{output_2}"),
}
"""The forms of a published prompt, and the places that each has for a pair."""
Language = Literal["en", "zh"]
"""The language of the instructions for the reply: English or Chinese."""
Persona = Literal["long", "short"]
PAIR, NUMBER = frozenset({"instruction", "first", "second"}), frozenset({"number"})
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
    },
    spare=("example", "system"),
)


class WorkedExample(Section):
    """A pair, the better of its outputs, and why."""

    instruction: str
    input: str | None = None
    first: str
    second: str
    preferred: Literal["first", "second"]
    explanation: str


class PromptedProfile(Section):
    """The fields common to all annotators of a pool's file; `model` names the annotator's model.

    A prompt shows at most `batch_size` pairs. `logit_bias` raises or lowers the logits of tokens,
    named by their ids or by their texts.
    """

    name: str = Field(min_length=1, max_length=80)
    model: Role
    batch_size: int = Field(1, ge=1, le=MOST_PAIRS, strict=True)
    temperature: float = Field(1.0, ge=0, le=5)
    top_p: float = Field(1.0, gt=0, le=1)
    max_tokens: int = Field(ge=1, strict=True)
    logit_bias: tuple[tuple[int | str, Annotated[float, Field(ge=-100, le=100)]], ...] = ()


class Profile(PromptedProfile):
    """An annotator whose prompts come from a set of templates.

    Prompts begin with `examples` worked pairs. With `ties` the annotator may prefer neither output.
    `language` is the language of the template, of the instructions for the reply and of the
    persona.
    """

    template: str = Field(min_length=1)
    form: ReplyForm
    examples: int = Field(0, ge=0, strict=True)
    persona: Persona | None = None
    ties: bool = Field(default=False, strict=True)
    language: Language = "en"


class StatedPattern(Section):
    """How a verdict for one output is found in a reply, and how one is written."""

    matches: str = Field(min_length=1)
    written: str = Field(min_length=1)

    @model_validator(mode="after")
    def _check_matches(self) -> Self:
        """Refuse an expression that does not find the verdict as it is written."""
        try:
            found = len(re.findall(self.matches, self.written))
        except re.error as error:
            raise ValueError(f"{self.matches!r} is not a regular expression ({error})") from error
        if found != 1:
            raise ValueError(
                f"{self.matches!r} must match once in {self.written!r}, not {found} times"
            )
        return self


class VerdictPatterns(Section):
    """The regular expressions of which each match in a reply is a verdict, one a pair."""

    first: StatedPattern
    second: StatedPattern


class PublishedProfile(PromptedProfile):
    """An annotator whose prompts were published as a whole.

    `prompts` names two files, `NAME_with_inputs.txt` and `NAME_without_inputs.txt`. If a reply does
    not have as many verdicts as the prompt has pairs, none of them counts.
    """

    prompts: str = Field(min_length=1)
    verdicts: VerdictPatterns


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
    def digest(self) -> str:
        """Return the hash of all that shapes its prompts and how they are answered."""
        worked = (*self.worked_examples(with_input=False), *self.worked_examples(with_input=True))
        shown: list[Json] = [example.model_dump(mode="json") for example in worked]
        content: list[Json] = [self.name, self.model, self.form, self.batch_size, self.ties]
        drawn: list[Json] = [self.temperature, self.top_p, self.max_tokens, self.logit_bias]
        templates = [self.templates.get(name) for name in PAIR_TEMPLATES.files]
        form = form_text(self.form, several=self.several, language=self.language)
        persona = persona_text(self.persona, self.language) if self.persona else ""
        if self.language != "en" and self.ties:  # The English form covers ties without this text.
            form += tie_text(self.form, self.language)
        return digest([content, drawn, shown, templates, form, persona])


class PublishedAnnotator(PublishedProfile):
    """A model with a published prompt: its profile, and the prompt with inputs and without.

    A guard's line would change the prompt, so runs with a guard refuse it.
    """

    with_inputs: str
    without_inputs: str
    short: ClassVar[bool] = True

    @property
    def digest(self) -> str:
        """Return the hash of all that shapes its prompts and how they are answered."""
        return digest(self.model_dump(mode="json"))

    def prompt(self, *, with_input: bool) -> str:
        """Return the prompt for instructions with an input, or without one."""
        return self.with_inputs if with_input else self.without_inputs


AnyAnnotator = Annotator | PublishedAnnotator


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotatorPool:
    """A pool of annotators, each drawn with the same probability."""

    name: str
    annotators: tuple[AnyAnnotator, ...]

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
    annotators = tuple(_annotator_of(path, name, entry) for name, entry in entries)
    return AnnotatorPool(name=path.stem, annotators=annotators)


@lru_cache
def form_text(form: ReplyForm, *, several: bool, language: Language = "en") -> str:
    """Return the instructions for writing a reply, about one pair or several."""
    return load_template(_language_folder("forms", language) / _form_file(form, several=several))


@lru_cache
def tie_text(form: ReplyForm, language: Language) -> str:
    """Return the text that offers a tie."""
    return load_template(_language_folder("forms", language) / f"{form}_tie.txt")


@lru_cache
def persona_text(persona: Persona, language: Language = "en") -> str:
    """Return the text that gives an annotator a taste for long, or for short outputs."""
    return load_template(_language_folder("personas", language) / f"{persona}.txt")


@lru_cache
def shipped_examples(*, with_input: bool) -> tuple[WorkedExample, ...]:
    """Return the worked examples, either all with an input or all without."""
    path = HERE / "examples" / ("with_input.yaml" if with_input else "without_input.yaml")
    rows = cast("list[object]", read_yaml(path, missing="no worked examples can be read"))
    return tuple(WorkedExample.model_validate(row) for row in rows)


def _language_folder(what: str, language: Language) -> Path:
    """Return the folder with texts in a language; the English ones are in its parent."""
    return HERE / what if language == "en" else HERE / what / language


def _form_file(form: ReplyForm, *, several: bool) -> str:
    return f"{form}_{'many' if several else 'one'}.txt"


def _annotator_of(path: Path, name: str, entry: dict[str, Any]) -> AnyAnnotator:
    """Return the annotator that an entry of a pool's file describes."""
    if "prompts" in entry:
        return _published_annotator(POOLS.as_section(path, name, entry, PublishedProfile), path)
    return _annotator(POOLS.as_section(path, name, entry, Profile), path)


def _published_annotator(profile: PublishedProfile, path: Path) -> PublishedAnnotator:
    texts = {form: _published_text(profile, form, path) for form in PLACES}
    return PublishedAnnotator.model_validate({**profile.model_dump(), **texts})


def _published_text(profile: PublishedProfile, form: str, path: Path) -> str:
    """Return a published prompt, with inputs or without: shipped, or next to the pool's file."""
    name, size = f"{profile.prompts}_{form}.txt", profile.batch_size
    folder = PUBLISHED if (PUBLISHED / name).is_file() else path.parent
    text = read_template(folder / name)
    for place in PLACES[form]:
        if (count := text.count(place)) != size:
            raise ConfigError(
                f"{path}: annotator {profile.name!r}: batch_size is {size}, and {name} has "
                f"{place} {count} times"
            )
    return text


def _annotator(profile: Profile, path: Path) -> Annotator:
    templates = PAIR_TEMPLATES.load(profile.template, path.parent)
    if fault := _english_only(profile) or _fault(profile, templates):
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


def _english_only(profile: Profile) -> str | None:
    """Return a setting of a profile that is available only in English, as text, if any."""
    if profile.language == "en":
        return None
    forms = _language_folder("forms", profile.language)
    if profile.examples:
        return f"the worked examples are in English: leave examples out in {profile.language!r}"
    if not (forms / _form_file(profile.form, several=profile.batch_size > 1)).exists():
        available = ", ".join(
            sorted(path.stem.removesuffix("_one") for path in forms.glob("*_one.txt"))
        )
        return (
            f"in the language {profile.language!r} the forms are {available}, about one pair each"
        )
    return None
