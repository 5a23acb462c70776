"""What a judge is asked about a prompt, and how its reply is read (ChatGLM-RLHF, Section 3.2).

Three aspects, each -1, 0 or 1: is the intention clear, is the text understandable, can it be
answered. With a taxonomy the judge also names the class of the intention, on a line `Class: NAME`.
The ratings stand in a last dictionary, which is read as a critique's is (`critics.reply`); a reply
that lacks the dictionary or, where one is asked for, the class, says nothing.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ...configs.filters import PromptQuality
from ...stores.keys import digest
from ...stores.records import SCORED, AspectRating, FinishReason, Message
from ..critique_reply import Expected, Reading, read_reply
from ..templating import defused, load_template, render, tags, templates_in
from .taxonomy import Taxonomy, load_taxonomy

ASPECTS = ("intention", "semantics", "answerability")
EXPECTED = Expected.all_of(*ASPECTS)
NO_CLASS = "no_class"
"""The status of a reply with ratings that names no class of the taxonomy, or several."""

TEMPLATES = Path(__file__).parent / "templates"
PLAIN, CLASSED = "review", "review_with_class"
REQUIRED: dict[str, frozenset[str]] = {
    PLAIN: frozenset({"prompt"}),
    CLASSED: frozenset({"prompt", "classes"}),
}
CLASS = re.compile(r"^[\s*#>`-]*class[\s*`]*:(.*)$", re.IGNORECASE | re.MULTILINE)
MARKS = " \t\r*`\"'."


@dataclass(frozen=True, slots=True, kw_only=True)
class Reviewer:
    """How prompts are reviewed: the template, and the taxonomy if there is one."""

    template: str
    taxonomy: Taxonomy | None

    @classmethod
    def from_config(cls, config: PromptQuality) -> Self:
        """Load the template and the taxonomy that `config` names.

        Raises:
            ConfigError: if they can not be used; names the file.
        """
        taxonomy = None if config.intentions is None else load_taxonomy(config.intentions)
        name = PLAIN if taxonomy is None else CLASSED
        return cls(template=_template(config.templates, name), taxonomy=taxonomy)

    @property
    def digest(self) -> str:
        """Return the hash of all that shapes a question and the reading of its reply."""
        shown = None if self.taxonomy is None else self.taxonomy.shown
        return digest([self.template, shown])

    def ask(self, text: str) -> tuple[Message, ...]:
        """Return what asks for a review of a prompt, in which no tag ends the prompt early."""
        values = {"prompt": defused(text, tags(self.template))}
        if self.taxonomy is not None:
            values["classes"] = self.taxonomy.shown
        return (Message(role="user", content=render(self.template, values)),)

    def read(self, text: str, finish_reason: FinishReason) -> tuple[Reading, str | None]:
        """Return the ratings of a reply, or why it has none, and the class that it names."""
        reading = read_reply(text, finish_reason, EXPECTED)
        if self.taxonomy is None or reading.status != SCORED:
            return reading, None
        intention = _class(text, self.taxonomy)
        return (reading, intention) if intention else (unread(NO_CLASS), None)


def unread(status: str) -> Reading:
    """Return a reading without ratings."""
    return Reading(
        status, tuple(AspectRating(name=name, rating=None, comment="") for name in ASPECTS)
    )


def shipped_reviews() -> tuple[str, ...]:
    """Return the names of the template sets that come with the package."""
    return tuple(sorted(path.name for path in TEMPLATES.iterdir() if path.is_dir()))


def _class(text: str, taxonomy: Taxonomy) -> str | None:
    """Return the class that a reply names, on however many lines; None if they differ."""
    named = {taxonomy.named(said.strip(MARKS)) for said in CLASS.findall(text)}
    return named.pop() if len(named) == 1 else None


def _template(name_or_folder: str, name: str) -> str:
    """Read one template of a shipped set, or of a folder.

    Raises:
        ConfigError: if there is no such folder, or the template can not be used; names the file.
    """
    shipped = shipped_reviews()
    folder = TEMPLATES / name_or_folder if name_or_folder in shipped else Path(name_or_folder)
    found = templates_in(folder, REQUIRED, shipped)
    return load_template(found.get(name, folder / f"{name}.txt"), REQUIRED[name])
