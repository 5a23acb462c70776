"""A person who judges a run by hand: the next item, their verdict on it, and their progress.

Judgments by a model, or another person, are not shown. The order in which two answers are shown is
drawn by a hash of the pair and the person, and stored.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ...configs.mistakes import ConfigError
from ...critics.feedback import Aspect, load_aspects
from ...stores.annotation_ledger import AnnotationLedger, LedgerEntry
from ...stores.frames import frame_rows
from ...stores.keys import Json, canonical_json, derive_seed
from ...stores.lake import RunReader
from ...stores.records import Candidate, Critique, Message, Order, Preferred, Prompt, storable
from ..data.files import InputError
from ..data.judged_candidates import HUMAN, TRUSTED
from ..lake.annotations.bring_in import judgment_rows
from ..lake.annotations.judging_queue import (
    JudgedItem,
    QueueRequest,
    Taken,
    next_place,
    queue_items,
)
from ..lake.trace.find_row import find
from .people_agreement import PeopleAgreement, people_agreement

OVERALL = "Overall"
"""The aspect of answers that no model was prompted to rate."""
LONGEST_NAME = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgingCard:
    """An item as a person sees it: the prompt, the reference, the answers as shown, the aspects."""

    item: JudgedItem
    task: str
    prompt: tuple[Message, ...]
    reference: str | None
    answers: tuple[str, ...]
    aspects: tuple[str, ...]
    order: Order

    @property
    def shown(self) -> tuple[str, ...]:
        """The ids of the answers, in the order in which they are shown."""
        return self.item.ids[::-1] if self.order == "swapped" else self.item.ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion:
    """A person's verdict on an item: ratings by aspect, or the place of the better answer.

    `better` is 0 or 1 in the order shown, or None for a tie.
    """

    ratings: Mapping[str, int]
    better: int | None = None
    comment: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgingProgress:
    """How far a queue is: judgements by this person, by all, and how many it needs.

    `met` of `shared` items that several people shall judge have all their judgements.
    """

    mine: int
    given: int
    goal: int
    met: int
    shared: int

    @property
    def sentence(self) -> str:
        """It in words, for a footer."""
        overlap = f", overlap {self.met} of {self.shared}" if self.shared else ""
        return f"you {self.mine}, all {self.given} of {self.goal}{overlap}"


class AnnotationSession:
    """One person at one queue of a run."""

    def __init__(self, run: RunReader, annotator: str, request: QueueRequest) -> None:
        """Open the ledger.

        Raises:
            InputError: for a name that cannot be used.
            LedgerError: if the ledger cannot be kept.
        """
        self.annotator, self.wanted, self._run = required_name(annotator), request, run
        self._ledger = AnnotationLedger(run.folder)
        config: dict[str, Any] = json.loads(run.journal.meta("config") or "{}")
        self._critic = config.get("critic", {})
        self.rubric = {aspect.name: aspect for aspect in _rubric(self._critic)}

    def close(self) -> None:
        """Close the ledger; the run stays open."""
        self._ledger.close()

    def begin(self) -> None:
        """Make the queue, unless somebody has.

        Raises:
            InputError: if the run lacks answers to judge, or the signals that the rule sorts by.
        """
        request = self.wanted
        self._ledger.begin(request.name, request.facts, lambda: queue_items(self._run, request))

    def held_card(self) -> tuple[JudgingCard, float] | None:
        """Return the item that this person holds, and since how many seconds; None without one."""
        held = self._ledger.held_item(self.wanted.name, self.annotator)
        if held is None:
            return None
        item, begun = held
        return self._card(JudgedItem.from_name(item)), max(time.time() - begun, 0.0)

    def next_card(self) -> JudgingCard | None:
        """Return this person's next item to judge; None if no item is left for them."""
        overlap, queue = self.wanted.overlap, self.wanted.name
        items = len(self._ledger.items(queue))
        name = self._ledger.assign(
            queue,
            self.annotator,
            lambda holders, seen: next_place(items, overlap, Taken(holders=holders, seen=seen)),
        )
        return None if name is None else self._card(JudgedItem.from_name(name))

    def again(self, text: str) -> JudgingCard:
        """Give this person an answer to judge once more; the later judgement decides.

        Raises:
            InputError: if `text` is not an answer's id, or pairs are judged.
            NoSuchIdError: if the id does not exist.
        """
        found = find(self._run, text)
        if found.kind != "candidate" or found.prompt_id is None or self.wanted.judged == "pairs":
            raise InputError(f"{text} is a {found.kind}: give the id of an answer, without --pairs")
        item = JudgedItem(prompt_id=found.prompt_id, ids=(found.id,), aspect=self.wanted.aspect)
        self._ledger.again(item.name, self.annotator)
        return self._card(item)

    def judge(self, card: JudgingCard, opinion: Opinion, seconds: float) -> None:
        """Store this person's verdict on an item; durable on return.

        Raises:
            InputError: for ratings of other aspects or outside -1, 0, 1, or none at all.
            LedgerError: if they do not hold it.
        """
        at = time.time()
        row = {
            **_row(card, opinion),
            "annotator": self.annotator,
            "judged_at": datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds"),
            "judged_seconds": round(max(seconds, 0.0), 1),
        }
        self._ledger.give(
            LedgerEntry(
                queue=self.wanted.name,
                item=card.item.name,
                annotator=self.annotator,
                at=at,
                seconds=seconds,
                row=canonical_json(row),
            )
        )

    def skip(self, card: JudgingCard) -> None:
        """Leave an item to others."""
        self._ledger.skip(card.item.name, self.annotator)

    def undo(self) -> bool:
        """Take back this person's last verdict, so that its item is next; False without one."""
        return self._ledger.undo(self.wanted.name, self.annotator) is not None

    def progress(self) -> JudgingProgress:
        """Return how far the queue is."""
        overlap, queue = self.wanted.overlap, self.wanted.name
        items = len(self._ledger.items(queue))
        judged = self._ledger.judges_by_place(queue)
        needed = {place: overlap.judges(place) for place in range(items)}
        several = [place for place, people in needed.items() if people > 1]
        return JudgingProgress(
            mine=sum(self.annotator in people for people in judged.values()),
            given=sum(min(len(people), needed[place]) for place, people in judged.items()),
            goal=sum(needed.values()),
            met=sum(len(judged.get(place, ())) >= needed[place] for place in several),
            shared=len(several),
        )

    def agreement(self) -> PeopleAgreement:
        """Return how far people agree on answers, or on pairs, in all queues."""
        judgments = judgment_rows([entry for entry in self._ledger.judgments() if not entry.undone])
        ratings = self.wanted.judged == "ratings"
        return people_agreement(row for row in judgments if isinstance(row, Critique) == ratings)

    def _card(self, item: JudgedItem) -> JudgingCard:
        frames = self._run.about(item.prompt_id, ["prompts", "candidates", "critiques"])
        prompts, candidates, critiques = (frame.collect() for frame in frames)
        (prompt, *_) = frame_rows(Prompt, prompts)
        texts = {one.candidate_id: one.text for one in frame_rows(Candidate, candidates)}
        draw = derive_seed(self.wanted.seed, item.name, self.annotator)
        swapped = len(item.ids) > 1 and draw % 2 == 1
        ids = item.ids[::-1] if swapped else item.ids
        missing = [one for one in ids if one not in texts]
        if missing:
            name = self._run.folder.name
            raise InputError(f"run {name} does not hold {missing[0]} any more; resume it first")
        rows = frame_rows(Critique, critiques)
        return JudgingCard(
            item=item,
            task=prompt.task,
            prompt=prompt.messages,
            reference=prompt.reference,
            answers=tuple(texts[one] for one in ids),
            aspects=self._aspects(item, prompt, rows) if len(ids) == 1 else (),
            order="swapped" if swapped else "as_given",
        )

    def _aspects(
        self, item: JudgedItem, prompt: Prompt, critiques: list[Critique]
    ) -> tuple[str, ...]:
        """Return the aspects to rate: the ones that models were prompted to rate in this answer."""
        if item.aspect is not None:
            return (item.aspect,)
        by_model = [row for row in critiques if not row.critic.startswith(TRUSTED)]
        own = [row for row in by_model if row.candidate_id in item.ids]
        names = [aspect.name for row in own for aspect in row.aspects]
        fixed = self._critic.get("task_aspects", {}).get(prompt.task, OVERALL)
        return tuple(dict.fromkeys(names)) or (fixed,)


def required_name(annotator: str) -> str:
    """Return a person's name as it is stored, without the prefix of people's names.

    Raises:
        InputError: for a name that is empty, too long, or not one line of visible characters.
    """
    name = annotator.strip().removeprefix(HUMAN)
    if not name or len(name) > LONGEST_NAME or not name.isprintable() or name != storable(name):
        raise InputError(
            f"{annotator!r} is not a valid annotator name: give 1 to {LONGEST_NAME} characters"
        )
    return name


def _rubric(critic: Mapping[str, Any]) -> tuple[Aspect, ...]:
    """Return the aspects with their levels; () if the run's own file is not here any more."""
    try:
        return load_aspects(critic["aspects"]) if "aspects" in critic else ()
    except ConfigError:
        return ()


def _row(card: JudgingCard, opinion: Opinion) -> dict[str, Json]:
    """Return an opinion as a line of a file of annotations has it."""
    text = {"text": storable(opinion.comment.strip())} if opinion.comment.strip() else {}
    if len(card.answers) > 1:
        words: tuple[Preferred, Preferred] = ("first", "second")
        if opinion.better not in (0, 1, None) or opinion.ratings:
            raise InputError("choose the better of two answers, or neither; do not rate them")
        shown = card.shown
        first, second = card.item.ids
        preferred = (
            "tie" if opinion.better is None else words[(first, second).index(shown[opinion.better])]
        )
        vote = {"preferred": preferred, "order": card.order}
        return {"first_id": first, "second_id": second, **vote, **text}
    strange = [name for name in opinion.ratings if name not in card.aspects]
    if strange or not opinion.ratings or not set(opinion.ratings.values()) <= {-1, 0, 1}:
        raise InputError(
            f"rate {', '.join(card.aspects)} with -1, 0 or 1; given: {dict(opinion.ratings)}"
        )
    return {"candidate_id": card.item.ids[0], "ratings": dict(opinion.ratings), **text}
