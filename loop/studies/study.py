"""A study: a hypothesis of a paper, the runs that decide it, and what is found in their rows."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...stores.keys import Json
from ..evaluation.panels import Panel
from .claims import ClaimVerdict, PaperClaim, verdict_of
from .evidence import Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyFile:
    """A JSONL file of the tiny world that an arm reads, written when the study is run.

    `setting` is the one that names it.
    """

    setting: str
    name: str
    rows: Callable[[], Iterable[Mapping[str, str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyArm:
    """A run of a study: a recipe with the settings that the claim needs, under any world.

    An arm's name means the same settings in every study, so that studies share its runs. `tiny`
    are the sizes for the tiny world, left out with a user's own models. `fork` names an arm whose
    units it may take, `policy_of` one whose last policy it begins with, `reward_of` one whose
    reward model it is given: all must come first in a study. `files` are written for it.
    """

    name: str
    recipe: str
    settings: tuple[str, ...] = ()
    tiny: tuple[str, ...] = ()
    fork: str = ""
    policy_of: str = ""
    reward_of: str = ""
    files: tuple[StudyFile, ...] = ()

    @property
    def needs(self) -> tuple[str, ...]:
        """The arms that make what this one begins with."""
        return tuple(name for name in (self.policy_of, self.reward_of) if name)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyTable:
    """Rows of text cells under their titles."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyFinding:
    """What a study found over its seeds.

    `notes` are sentences that explain it, made of the evidence; `commands` show that evidence.
    """

    claims: Sequence[PaperClaim]
    tables: Sequence[StudyTable] = ()
    panels: Sequence[Panel] = ()
    notes: Sequence[str] = ()
    commands: Sequence[str] = ()

    @property
    def verdict(self) -> ClaimVerdict:
        """Whether the hypothesis holds: every claim does."""
        return verdict_of(self.claims)

    def document(self) -> dict[str, Json]:
        """Return the finding as JSON data."""
        return {
            "verdict": self.verdict,
            "claims": [claim.document() for claim in self.claims],
            "notes": list(self.notes),
            "commands": list(self.commands),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A hypothesis with the arms that decide it, and how it is read from what they made.

    `built_in` says what of the answer the tiny world contains by construction; `tiny_only` why the
    study means nothing with other models, where that is so.
    """

    name: str
    hypothesis: str
    paper: str
    arms: tuple[StudyArm, ...]
    find: Callable[[Evidence], StudyFinding]
    built_in: str = ""
    tiny_only: str = ""

    def __post_init__(self) -> None:
        """Refuse arms of one name, and such as need what comes after them."""
        before = list[str]()
        for arm in self.arms:
            if arm.name in before or not set(arm.needs) <= set(before):
                raise ValueError(f"{self.name}: arm {arm.name} is twice, or needs a later one")
            before.append(arm.name)
