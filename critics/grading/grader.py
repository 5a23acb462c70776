"""The grader: its questions about completions (UltraFeedback, 2.4).

All completions of a prompt are rated in one aspect together, in an order that the caller chooses;
the critique with its overall score is about one completion.

A set of templates has one for each aspect (`truthfulness.txt`, ..) and one for the critique
(`overall.txt`). `text.txt` shows one completion, `reference.txt` the reference and `principle.txt`
the principle that a completion was to follow. The instructions for the reply (`{form}`) come from
`forms/`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Self

from ...configs.schema import GradingConfig
from ...stores.keys import digest
from ...stores.records import GradedAspect, Prompt
from ..guard import (
    BARE,
    GuardKey,
    TemplateSets,
    fixed_lines,
    load_template,
    placeholders,
    render,
)
from ..judge import Expected, Question, user_message
from .grade_reply import FINE_GRAINED, SCALES, Appraisal, Appraisals, OverallScore, without_labels

HERE = Path(__file__).parent
GRADING_TEMPLATES = TemplateSets(
    folder=HERE / "templates",
    files={
        **dict.fromkeys(
            FINE_GRAINED,
            (frozenset({"instruction", "texts", "form"}), frozenset({"count", "reference"})),
        ),
        "overall": (
            frozenset({"instruction", "answer", "form"}),
            frozenset({"principle", "reference"}),
        ),
        "text": (frozenset({"number", "answer"}), frozenset()),
        "reference": (frozenset({"reference"}), frozenset()),
        "principle": (frozenset({"principle"}), frozenset()),
    },
    fallback="ultrafeedback",
)
RIGHT = "Answers that are known to be right:"
WRONG = "Answers that are often given, and known to be wrong:"
INNER = {"texts": "text", "reference": "reference", "principle": "principle"}
"""The templates of the parts of a question, by their placeholders in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grader:
    """Templates of questions; `use_reference` shows prompts' references if a template can."""

    templates: Mapping[str, str]
    use_reference: bool

    @classmethod
    def from_config(cls, config: GradingConfig) -> Self:
        """Load the templates that `config` names.

        Raises:
            ConfigError: if they cannot be used.
        """
        templates = GRADING_TEMPLATES.load(config.templates)
        return cls(templates=templates, use_reference=config.use_reference)

    def digest(self, aspect: GradedAspect) -> str:
        """Return the hash of all that shapes questions about an aspect, and how they are read."""
        scale = SCALES[aspect]
        read_by = [scale.best, scale.types, scale.may_not_apply]
        shown = self.use_reference and self._shows("reference", aspect)
        return digest([digest(self._parts(aspect)), shown, read_by])

    def shows_reference(self, aspect: GradedAspect, prompt: Prompt) -> bool:
        """Whether questions about an aspect of answers to `prompt` show its reference."""
        there = known_of(prompt) is not None
        return self.use_reference and there and self._shows("reference", aspect)

    def ask(
        self,
        aspect: GradedAspect,
        prompt: Prompt,
        answers: Sequence[str],
        principle: str | None = None,
        key: GuardKey = BARE,
    ) -> Question[Appraisal]:
        """Return the question that rates all `answers` to `prompt` in an aspect.

        For the overall score there is one answer; `principle` is the principle that it was to
        follow, which excuses its consequences.
        """
        parts = self._parts(aspect)
        reference = known_of(prompt) if self.shows_reference(aspect, prompt) else None
        judged = (*answers, prompt.instruction, *filter(None, (reference, principle)))
        guard = key.over(judged, parts)

        def shown(text: str) -> str:
            return guard.fence(without_labels(text))

        def part(name: str, **values: str) -> str:
            return render(self.templates[name], values)

        texts = [
            part("text", number=str(number), answer=shown(answer))
            for number, answer in enumerate(answers, start=1)
        ]
        values = {
            "instruction": shown(prompt.instruction),
            "texts": "\n\n".join(texts),
            "answer": shown(answers[0]),
            "count": str(len(answers)),
            "form": "" if guard.by_schema else form_text(aspect),
            "reference": "",
            "principle": "",
        }
        if reference is not None:
            values["reference"] = f"{part('reference', reference=shown(reference))}\n\n"
        if principle is not None:
            values["principle"] = f"{part('principle', principle=shown(principle))}\n\n"
        question = Question(
            messages=user_message(render(self.templates[aspect], values)),
            expected=_expected_reply(aspect, len(answers)),
            own_lines=fixed_lines(*parts),
            judged=judged,
        )
        return question.with_guard(guard)

    def _shows(self, name: str, aspect: GradedAspect) -> bool:
        """Whether the template of an aspect has the placeholder `name`."""
        return name in placeholders(self.templates[aspect])

    def _parts(self, aspect: GradedAspect) -> list[str]:
        """Return the texts that questions about an aspect are made of."""
        shown = [self.templates[part] for name, part in INNER.items() if self._shows(name, aspect)]
        return [self.templates[aspect], *shown, form_text(aspect)]


def known_of(prompt: Prompt) -> str | None:
    """Return a prompt's reference, with the right and wrong answers that its data set lists.

    The wording is not in a template, so `GRADE`'s version must change with it.
    """
    reference = prompt.reference if prompt.reference and prompt.reference.strip() else None
    listed = (
        (RIGHT, [text for text in prompt.correct_answers or () if text != reference]),
        (WRONG, prompt.incorrect_answers or ()),
    )
    lists = [
        "\n".join([words, *(f"- {text}" for text in texts)]) for words, texts in listed if texts
    ]
    return "\n\n".join(filter(None, (reference, *lists))) or None


def _expected_reply(aspect: GradedAspect, count: int) -> Expected[Appraisal]:
    if aspect == "overall":
        return OverallScore(scale=SCALES[aspect])
    return Appraisals(aspect, count)


@lru_cache
def form_text(aspect: GradedAspect) -> str:
    """Return the instructions to a grader for writing its reply about an aspect."""
    scale = SCALES[aspect]
    if aspect == "overall":
        name = "overall"
    elif scale.types:
        name = "typed"
    else:
        name = "rated_or_not" if scale.may_not_apply else "rated"
    return load_template(HERE / "forms" / f"{name}.txt")
