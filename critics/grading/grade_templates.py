"""The templates that graders are asked with: sets of texts, named or in folders of one's own.

A set has a template for each aspect (`truthfulness.txt`, ..) and one for the critique with its
overall score (`overall.txt`). `text.txt` shows one completion, `reference.txt` the reference and
`principle.txt` what a completion was told to heed. What the reply must look like (`{form}`) is not
the set's to say: it comes from `forms/`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ...configs.schema import ConfigError
from ...stores.keys import digest
from ...stores.records import GradedAspect
from ..templating import (
    defused,
    file_names,
    load_template,
    placeholders,
    render,
    tags,
    templates_in,
)
from .graded_aspects import FINE_GRAINED, SCALES
from .labels import without_labels

HERE = Path(__file__).parent
TEMPLATES = HERE / "templates"
FALLBACK = "ultrafeedback"

ASPECT = frozenset({"instruction", "texts", "form"})
REQUIRED: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(FINE_GRAINED, ASPECT),
    "overall": frozenset({"instruction", "answer", "form"}),
    "text": frozenset({"number", "answer"}),
    "reference": frozenset({"reference"}),
    "principle": frozenset({"principle"}),
}
OPTIONAL: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(FINE_GRAINED, frozenset({"count", "reference"})),
    "overall": frozenset({"principle", "reference"}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GradingTemplates:
    """The texts of one set; `questions` has that of each aspect."""

    questions: Mapping[GradedAspect, str]
    text: str
    reference: str
    principle: str

    def digest(self, aspect: GradedAspect) -> str:
        """Return the hash of all that shapes the questions about an aspect."""
        return digest(self._parts(aspect))

    def shows(self, name: str, aspect: GradedAspect) -> bool:
        """Whether the placeholder `name` stands in the template of an aspect."""
        return name in placeholders(self.questions[aspect])

    def own_lines(self, aspect: GradedAspect) -> frozenset[str]:
        """Return the lines of the questions about an aspect that stand there as they are."""
        lines = (line.strip() for part in self._parts(aspect) for line in part.splitlines())
        return frozenset(line for line in lines if not placeholders(line))

    def harmless(self, text: str, aspect: GradedAspect) -> str:
        """Return `text` so that it can end no part of a question about an aspect, nor be a verdict.

        The question's tags are broken in it, and all labels.
        """
        return without_labels(defused(text, tags(*self._parts(aspect))))

    def shown_text(self, number: int, answer: str, aspect: GradedAspect) -> str:
        """Return a completion as questions show it."""
        return render(self.text, {"number": str(number), "answer": self.harmless(answer, aspect)})

    def shown_reference(self, reference: str, aspect: GradedAspect) -> str:
        """Return the reference as questions show it; a gap follows."""
        return f"{render(self.reference, {'reference': self.harmless(reference, aspect)})}\n\n"

    def shown_principle(self, principle: str) -> str:
        """Return what a completion was told to heed as its critique shows it; a gap follows."""
        return f"{render(self.principle, {'principle': self.harmless(principle, 'overall')})}\n\n"

    def _parts(self, aspect: GradedAspect) -> list[str]:
        """Return the texts that questions about an aspect are made of."""
        inner = {"texts": self.text, "reference": self.reference, "principle": self.principle}
        shown = [text for name, text in inner.items() if self.shows(name, aspect)]
        return [self.questions[aspect], *shown, form_text(aspect)]


def shipped_gradings() -> tuple[str, ...]:
    """Return the names of the template sets that come with the package."""
    return tuple(sorted(path.name for path in TEMPLATES.iterdir() if path.is_dir()))


def load_gradings(name_or_folder: str) -> GradingTemplates:
    """Read a shipped set by its name, or a folder; a file that it lacks is `ultrafeedback`'s.

    Raises:
        ConfigError: if there is no such folder, it holds no template or an unknown one, or one
            lacks a placeholder or has an unknown one; names the file.
    """
    shipped = shipped_gradings()
    folder = TEMPLATES / name_or_folder if name_or_folder in shipped else Path(name_or_folder)
    found = templates_in(folder, REQUIRED, shipped)
    if not found:
        raise ConfigError(f"{folder}: holds none of {file_names(REQUIRED)}")

    def template(name: str) -> str:
        path = found.get(name, TEMPLATES / FALLBACK / f"{name}.txt")
        return load_template(path, REQUIRED[name], OPTIONAL.get(name, frozenset()))

    return GradingTemplates(
        questions={aspect: template(aspect) for aspect in SCALES},
        text=template("text"),
        reference=template("reference"),
        principle=template("principle"),
    )


@lru_cache
def form_text(aspect: GradedAspect) -> str:
    """Return what tells a grader how to write its reply about an aspect."""
    scale = SCALES[aspect]
    if aspect == "overall":
        name = "overall"
    elif scale.types:
        name = "typed"
    else:
        name = "rated_or_not" if scale.may_not_apply else "rated"
    return load_template(HERE / "forms" / f"{name}.txt")
