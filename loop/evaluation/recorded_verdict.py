"""The verdict on recorded results: is model b better than model a, on the prompts of both?"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean

from ...stores.keys import Json
from ...stores.records import Message, Prompt
from ..data.prompt_clusters import clusters_of
from ..data.prompt_rows import GENERAL
from ..data.splits import HELD_OUT
from ..lake.imports.compared_rows import PREFERENCE
from ..lake.statistics.decisions import (
    Decision,
    PairedResults,
    decide,
    level_of_look,
)
from .length_control import Compared, LengthControlled, Uncontrolled, length_controlled
from .recorded_results import PairedPrompts, PromptResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Standard:
    """The parameters of a verdict: the error rate, the number of the look, the gain that matters.

    Without a look the comparison is the only one, and gets the whole error rate.
    """

    error_rate: float = 0.05
    look: int | None = None
    worthwhile: float = 0.01

    @property
    def level(self) -> float:
        """The one-sided level of the comparison."""
        return self.error_rate if self.look is None else level_of_look(self.error_rate, self.look)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedVerdict:
    """A verdict over all prompts; `level` is the level of its bounds.

    `lengths` are the mean characters of the answers, `controlled` is b's win-rate at equal lengths,
    if known.
    """

    figure: str
    level: float
    decision: Decision
    lengths: tuple[float, float] | None
    controlled: LengthControlled | None
    remarks: Sequence[str]

    @property
    def document(self) -> dict[str, Json]:
        """The verdict as JSON data."""
        lengths = self.lengths
        return {
            **asdict(self.decision),
            "figure": self.figure,
            "level": self.level,
            "mean_length": None if lengths is None else {"a": lengths[0], "b": lengths[1]},
            "length_controlled": None if self.controlled is None else asdict(self.controlled),
            "remarks": list(self.remarks),
        }


def verdict_on(paired: PairedPrompts, standard: Standard) -> RecordedVerdict:
    """Return whether b is better than a."""
    a, b = list(paired.a.values()), list(paired.b.values())
    clusters, guessed = _clusters(paired)
    results = PairedResults(
        before=[result.value for result in a],
        after=[result.value for result in b],
        clusters=clusters,
    )
    same, remarks = _sameness(paired), list(paired.remarks)
    decision = decide(results, alpha=standard.level, worthwhile=standard.worthwhile)
    if same is not None:
        decision = replace(decision, answer="not better", needed=None)
        remarks.insert(0, same)
    controlled = _length_controlled(paired, clusters)
    if guessed is not None:
        remarks.append(guessed)
    if isinstance(controlled, Uncontrolled):
        remarks.append(f"b has no figure at equal lengths: {controlled.reason}")
    elif controlled is not None:
        remarks += [f"b at equal lengths: {remark}" for remark in controlled.remarks]
    return RecordedVerdict(
        figure=paired.figure,
        level=standard.level,
        decision=decision,
        lengths=_lengths(a, b),
        controlled=controlled if isinstance(controlled, LengthControlled) else None,
        remarks=remarks,
    )


def _clusters(paired: PairedPrompts) -> tuple[list[str], str | None]:
    """Return the cluster of each prompt, as given or by their texts, and a remark if guessed."""
    prompts = [_prompt(key, paired.a[key], paired.b[key]) for key in paired.a]
    found = clusters_of(prompts)
    alone = sum(prompt.cluster is None for prompt in prompts)
    guessed = len(prompts) - len(set(found.values()))
    clusters = (
        f"{alone} prompts name no cluster, so near copies count as one; if they are independent, "
        "give each its own value in a field and name it with --cluster"
    )
    return [found[key] for key in paired.a], clusters if alone and guessed else None


def _prompt(key: str, a: PromptResult, b: PromptResult) -> Prompt:
    text = a.text or b.text
    return Prompt(
        prompt_id=key,
        messages=() if text is None else (Message(role="user", content=text),),
        task=GENERAL,
        split=HELD_OUT,
        reference=None,
        checks=(),
        source="",
        cluster=a.cluster or b.cluster,
    )


def _sameness(paired: PairedPrompts) -> str | None:
    """Return in words that both are one, if they are: no number of prompts could part them."""
    if paired.same:
        return "a and b are the same file, or equal ones"
    pairs = [(paired.a[key].output, paired.b[key].output) for key in paired.a]
    if all(mine is not None and mine == other for mine, other in pairs):
        return "a and b give the same answer to every prompt"
    return None


def _lengths(a: Sequence[PromptResult], b: Sequence[PromptResult]) -> tuple[float, float] | None:
    texts = [(x.output, y.output) for x, y in zip(a, b, strict=True)]
    known = [(len(x), len(y)) for x, y in texts if x is not None and y is not None]
    if len(known) < len(texts):
        return None
    return fmean(x for x, _ in known), fmean(y for _, y in known)


def _length_controlled(
    paired: PairedPrompts, clusters: Sequence[str]
) -> LengthControlled | Uncontrolled | None:
    """Return b's win-rate at equal lengths, if there are preferences and both answers to each."""
    rows = [
        (key, result.value, len(result.output) - len(result.reference))
        for key, result in paired.b.items()
        if result.output is not None and result.reference is not None
    ]
    if paired.figure != PREFERENCE or len(rows) < len(paired.b):
        return None
    keys, won, longer = zip(*rows, strict=True)
    return length_controlled(Compared(won=won, longer_by=longer, prompts=keys, clusters=clusters))
