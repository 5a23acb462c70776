"""Rows of the lake made from imported ones: candidates, ratings, votes, pairs.

Values are not guessed: a rating is mapped to the three levels by a declared scale, the original
rating is kept in the critique's text if the scale would lose it, and an unreadable rating is null.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ....stores.keys import Json, row_id
from ....stores.records import (
    SCORED,
    AspectRating,
    Candidate,
    Critique,
    Grade,
    Message,
    Order,
    Pair,
    Preference,
    Preferred,
    Prompt,
    Rating,
    Reward,
    storable,
)
from ....stores.schemas import Row as StoredRow
from ...data.files import Row, RowError
from ...data.judged_candidates import LABEL
from ...data.prompt_rows import to_prompt
from ...data.rating_scale import SCALES, Scale, as_given, number
from ...data.row_fields import external_candidate

UNRATED = "unrated"
"""The status of a critique or vote that could not be read."""
UNKNOWN = "unknown"
IMPORTED = "imported"
"""The rule of pairs that were imported as pairs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedVerdict:
    """One aspect's annotation: the rating as given, and the reason."""

    name: str
    given: object
    comment: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhenJudged:
    """When a person judged (UTC, in ISO 8601), and how many seconds it took; None if unknown."""

    at: str | None = None
    seconds: float | None = None

    @property
    def inputs(self) -> dict[str, Json]:
        """The part that ids hash, so that judging again adds a separate row."""
        return {} if self.at is None else {"judged_at": self.at}


UNDATED = WhenJudged()


@dataclass(frozen=True, slots=True)
class Stored:
    """A candidate of a run, with the fields that an annotation needs."""

    candidate_id: str
    prompt_id: str
    iteration: int


Known = Candidate | Stored
"""A candidate that can be judged: imported here, or in the lake already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Maker:
    """Makes the rows of one import; those imported by an iteration get its number."""

    source: str
    scale: Scale
    task: str | None
    iteration: int = 0

    def prompt(self, row: Row) -> Prompt:
        """Return the prompt of a row.

        Raises:
            RowError: if its prompt is missing or unreadable.
        """
        return to_prompt(row, task=self.task, split="train", source=self.source)

    def candidate(
        self,
        prompt: Prompt,
        text: str,
        model: str | None,
        principle: str | None = None,
        *,
        sample: int | None = None,
    ) -> Candidate:
        """Return an answer that was made elsewhere; `sample` numbers equal ones of a model."""
        model = model or UNKNOWN
        inputs: dict[str, Json] = {
            "prompt": prompt.prompt_id,
            "source": self.source,
            "model": model,
            "principle": principle,
            "text": text,
        }
        if self.iteration:
            inputs["iteration"] = self.iteration
        if sample is not None:
            inputs["sample"] = sample
        return external_candidate(
            inputs,
            prompt_id=prompt.prompt_id,
            text=text,
            source=self.source,
            model=model,
            iteration=self.iteration,
            principle=principle,
        )

    def critique(
        self,
        candidate: Known,
        critic: str,
        verdicts: Iterable[ImportedVerdict],
        text: str,
        *,
        when: WhenJudged = UNDATED,
    ) -> Critique:
        """Return the critique of a candidate from an annotator's verdicts on its aspects.

        Raises:
            RowError: if a rating is outside the scale.
        """
        read = [(verdict, self._number(verdict)) for verdict in verdicts]
        aspects = tuple(
            AspectRating(
                name=verdict.name,
                rating=None if value is None else self.scale.level(value),
                comment=storable(verdict.comment),
            )
            for verdict, value in read
        )
        return _critique(candidate, critic, aspects, text + self._note(read), when)

    def label(self, candidate: Known, name: str, *, right: bool) -> Critique:
        """Return the label `name` of an answer in a data set as a critique: whether it is right."""
        rating = AspectRating(name=name, rating=1 if right else -1, comment="")
        return _critique(candidate, f"{LABEL}{name}", (rating,), "")

    def _number(self, verdict: ImportedVerdict) -> float | None:
        """Return a rating as a number on the scale; None if it is not a number."""
        value = number(verdict.given)
        if value is not None and not self.scale.low <= value <= self.scale.high:
            raise RowError(
                f"the rating {value:g} of {verdict.name!r} is not on the scale {self.scale.name}; "
                f"name the right one with --scale {'|'.join(SCALES)}"
            )
        return value

    def _note(self, read: Sequence[tuple[ImportedVerdict, float | None]]) -> str:
        """Return a line with the ratings that their levels would lose."""
        lost = {
            verdict.name: verdict.given if value is None else value
            for verdict, value in read
            if value is None or value != self.scale.value(self.scale.level(value))
        }
        return as_given(self.scale.name, lost) if lost else ""

    def reward(self, candidate: Known, name: str, score: float | None) -> list[Reward]:
        """Return the score of a candidate that the field `name` holds, or [] without one."""
        if score is None:
            return []
        row = Reward(
            candidate_id=candidate.candidate_id,
            prompt_id=candidate.prompt_id,
            iteration=candidate.iteration,
            reward_model=f"{self.source}:{name}",
            score=score,
            status=SCORED,
        )
        return [row]

    def preference(
        self,
        first: Known,
        second: Known,
        annotator: str,
        preferred: Preferred | None,
        *,
        order: Order = "as_given",
        text: str = "",
        when: WhenJudged = UNDATED,
    ) -> Preference:
        """Return a vote between two candidates."""
        inputs: dict[str, Json] = {
            "candidates": [first.candidate_id, second.candidate_id],
            "annotator": annotator,
            "preferred": preferred,
            "order": order,
            "text": text,
            **when.inputs,
        }
        return Preference(
            preference_id=row_id("pref", inputs),
            prompt_id=first.prompt_id,
            iteration=first.iteration,
            first_id=first.candidate_id,
            second_id=second.candidate_id,
            annotator=annotator,
            preferred=preferred,
            flipped=False,
            order=order,
            text=text,
            status=UNRATED if preferred is None else SCORED,
            judged_at=when.at,
            judged_seconds=when.seconds,
        )

    def pair(
        self,
        prompt: Prompt,
        chosen: Candidate,
        rejected: Candidate,
        scores: tuple[float | None, float | None],
        ratings: tuple[tuple[Rating, ...], tuple[Rating, ...]] = ((), ()),
    ) -> Pair:
        """Return a pair that was imported as a pair."""
        inputs = [IMPORTED, chosen.candidate_id, rejected.candidate_id]
        return Pair(
            pair_id=row_id("pair", inputs),
            prompt_id=prompt.prompt_id,
            iteration=self.iteration,
            chosen_id=chosen.candidate_id,
            rejected_id=rejected.candidate_id,
            rule=IMPORTED,
            rank=0,
            chosen_ratings=ratings[0],
            rejected_ratings=ratings[1],
            chosen_reward=scores[0],
            rejected_reward=scores[1],
            prompt=prompt.messages,
            chosen=(Message(role="assistant", content=chosen.text),),
            rejected=(Message(role="assistant", content=rejected.text),),
        )


def _critique(
    candidate: Known,
    critic: str,
    aspects: tuple[AspectRating, ...],
    text: str,
    when: WhenJudged = UNDATED,
) -> Critique:
    ratings = [[a.name, a.rating, a.comment] for a in aspects]
    inputs: dict[str, Json] = {
        "of": candidate.candidate_id,
        "critic": critic,
        "said": ratings,
        "text": text,
        **when.inputs,
    }
    return Critique(
        critique_id=row_id("crit", inputs),
        candidate_id=candidate.candidate_id,
        prompt_id=candidate.prompt_id,
        iteration=candidate.iteration,
        critic=critic,
        aspects=aspects,
        text=text,
        reference_used=False,
        status=SCORED if any(a.rating is not None for a in aspects) else UNRATED,
        attempts=1,
        judged_at=when.at,
        judged_seconds=when.seconds,
    )


IDS: Mapping[type[StoredRow], str] = {
    Prompt: "prompt_id",
    Candidate: "candidate_id",
    Critique: "critique_id",
    Grade: "grade_id",
    Preference: "preference_id",
    Pair: "pair_id",
}


def identity_of(row: StoredRow) -> str:
    """Return the id of a row within one import."""
    if isinstance(row, Reward):
        return f"{row.reward_model} of {row.candidate_id}"
    if type(row) not in IDS:
        raise TypeError(f"{type(row).__name__} rows are not imported")
    return str(getattr(row, IDS[type(row)]))


def by_type(rows: Iterable[StoredRow]) -> dict[type[StoredRow], Sequence[StoredRow]]:
    """Return rows by their type, as a unit is committed."""
    found = dict[type[StoredRow], list[StoredRow]]()
    for row in rows:
        found.setdefault(type(row), []).append(row)
    return dict(found)
