"""The verbs that compare: a policy's samples with one another, and its answers with a reference's.

Every pair gets one annotator of a panel. Each annotator has a separate stage, whose units are
committed as they finish; all of these stages use the same chunks of prompts.

An annotator judges several pairs per prompt. If a reply lacks a readable verdict on a pair, the
annotator gets that pair again under another seed, without the pairs of the same prompt that were
read. A verdict is never guessed: after the last reply the pair is stored unscored, with the reason
and the raw reply. Some pairs are decided without an annotator: answers that differ only in white
space are a tie, and noise (a coin) replaces the annotator. These draws are seeded
(`critics.annotators.simulate`).
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Self

from ...configs.annotation import Keying, Ordering
from ...configs.recipes import Annotated
from ...configs.schema import ConfigError
from ...critics.annotators.annotator_pool import Annotator
from ...critics.annotators.comparison import Comparison, ask, assign, coin, reconcile, shown_swapped
from ...critics.annotators.pair_verdicts import PairChoice
from ...critics.status import Status
from ...policies.engines.engine import Completion, Sampling
from ...stores.keys import Json, derive_seed, row_id
from ...stores.records import Candidate, Order, Preference
from ..data.prompt_rows import parted_input
from ..run.engine_client import EngineClient
from ..run.handles import Planned, Rows
from ..run.iteration import Iteration
from ..run.judges import JudgePanel
from ..run.run import Run, Verb
from .judging import (
    PENDING,
    RETRY_TEMPERATURE,
    JudgedStage,
    JudgeRequest,
    Posed,
    Replies,
    guard_params,
    with_room,
)

ANNOTATE, COMPARE = Verb("annotate"), Verb("compare", semantics=2)
EVALUATED_BY: Keying = "instruction"
"""So two policies meet one annotator and one order on an instruction, in whichever run."""
Match = tuple[Candidate, Candidate]
"""Two answers to one prompt that are to be compared."""


def annotate(it: Iteration, candidates: Rows[Candidate]) -> Rows[Preference]:
    """Compare two usable candidates of each prompt, or every two of them, with noise (p_ann).

    Truncated candidates are included if `annotation.cut_answers` is "compared".

    Raises:
        ConfigError: if the recipe, as configured, does not learn from comparisons.
    """
    it.require(Annotated, "annotate")
    seed, config = it.run.config.seed, it.run.config.annotation
    every, cut = config.comparisons == "all", config.cut_answers == "compared"

    def matched(chunk: int) -> list[Match]:
        drafts = it.chunk(candidates, chunk)
        pairs = drawn_pairs(drafts, seed, cut=cut)
        if every:
            texts_of = (texts for _, texts in _comparable(drafts, cut=cut))
            pairs = [pair for texts in texts_of for pair in combinations(texts, 2)]
        return pairs

    which: dict[str, Json] = {"comparisons": "all"} if every else {}
    if cut:
        which["cut_answers"] = config.cut_answers
    return _compare(it, ANNOTATE, it.run.panels.training, matched, which, candidates)


def compare(
    it: Iteration,
    answers: Rows[Candidate],
    outputs: Rows[Candidate],
    *,
    order: Ordering | None = None,
) -> Rows[Preference]:
    """Compare each answer, as the second, with the reference's output to its prompt (p_eval).

    Empty and truncated answers are compared as they are; prompts without an output are skipped. The
    configured order applies, unless `order` is given. Annotator and order are drawn by the
    instruction, so their effect cancels in the difference between two policies.

    Raises:
        ConfigError: if the run was opened without an evaluation by comparisons.
    """

    def matched(chunk: int) -> list[Match]:
        known = {output.prompt_id: output for output in it.chunk(outputs, chunk)}
        own = it.chunk(answers, chunk)
        return [(known[a.prompt_id], a) for a in own if a.prompt_id in known]

    panel = it.run.panels.evaluation
    return _compare(
        it, COMPARE, panel, matched, {}, answers, outputs, order=order, keyed_on=EVALUATED_BY
    )


def _compare(
    it: Iteration,
    verb: Verb,
    panel: JudgePanel | None,
    matched: Callable[[int], list[Match]],
    which: Mapping[str, Json],
    *read: Rows[Candidate],
    order: Ordering | None = None,
    keyed_on: Keying | None = None,
) -> Rows[Preference]:
    """Plan and run a stage for each annotator.

    `matched` gives the matches of a chunk of prompts, `which` the part of the keys that identifies
    their choice.
    """
    if panel is None:
        raise ConfigError(
            "this run lacks annotators: assessment.reference must name the answers to compare with"
        )
    config, stages = it.run.config.annotation, list[Planned]()
    for annotator in panel.annotators:
        annotating = Annotating(
            run=it.run,
            iteration=it.number,
            client=annotator_client(it.run, annotator),
            attempts=config.attempts,
            verb=verb,
            panel=panel,
            annotator=annotator,
            matched=matched,
            order=order or config.order,
            keyed_on=keyed_on or config.keyed_on,
        )
        params: Json = {"by": annotating.identity, "attempts": annotating.attempts, **which}
        label = f"{verb.name}:{read[0].label}:{annotator.name}"
        work = it.work(verb, params, *read)
        stages.append(annotating.plan(label, work))
    return Rows(row_type=Preference, stages=tuple(stages))


def drawn_pairs(candidates: Sequence[Candidate], seed: int, *, cut: bool = False) -> list[Match]:
    """Return one pair per prompt: two usable candidates with different texts, drawn at random.

    With `cut`, truncated candidates are usable, too.

    A pair keeps the order of `candidates`. If all texts of a prompt are equal (ignoring white
    space), its first two candidates are the pair; a prompt with fewer than two gets no pair.
    """
    pairs = list[Match]()
    for usable, texts in _comparable(candidates, cut=cut):
        seeded = random.Random(derive_seed(seed, "match", [c.candidate_id for c in usable]))
        if len(texts) > 1:
            first, second = sorted(seeded.sample(range(len(texts)), 2))
            pairs.append((texts[first], texts[second]))
    return pairs


def _comparable(
    candidates: Sequence[Candidate], *, cut: bool
) -> Iterator[tuple[list[Candidate], list[Candidate]]]:
    """Yield each prompt's usable candidates, and the first one of each text.

    If there is one text only, its first two candidates represent it.
    """
    by_prompt: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        if candidate.usable or (cut and candidate.cut):
            by_prompt.setdefault(candidate.prompt_id, []).append(candidate)
    for usable in by_prompt.values():
        texts = dict[str, Candidate]()
        for candidate in usable:
            texts.setdefault(_normal(candidate), candidate)
        yield usable, list(texts.values()) if len(texts) > 1 else usable[:2]


def _normal(candidate: Candidate) -> str:
    """Return a text with its white space normalised: answers that differ in it alone are one."""
    return " ".join(candidate.text.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class Showing:
    """A match, the order in which it is shown, its `place` in the unit, and its row before."""

    match: Match
    row: Preference
    place: int
    order: Order


Showings = tuple[Showing, ...]
AnyRequest = JudgeRequest[Showings, PairChoice, Preference]


class PairRequest(AnyRequest):
    """Comparisons that one prompt asks about."""

    def after_answer(self, answer: Completion) -> Sequence[Self]:
        """Return one request per pair, so that a retry asks only about the unread ones."""
        (whole,) = super().after_answer(answer)
        return [
            replace(whole, subject=(showing,), rows=(showing.row,), readings=(reading,))
            for showing, reading in zip(self.subject, whole.readings, strict=True)
        ]


@dataclass(frozen=True, kw_only=True)
class Annotating(JudgedStage[Showings, PairChoice, Preference]):
    """A stage of preferences on the matches that a panel assigns to one annotator.

    `matched` gives the matches of a chunk of prompts, `order` is the way in which their answers are
    shown, and `keyed_on` is the kind of key that seeds the draws.
    """

    row_type = Preference
    verb: Verb
    panel: JudgePanel
    annotator: Annotator
    matched: Callable[[int], Sequence[Match]]
    order: Ordering
    keyed_on: Keying

    def _depends_on(self) -> Mapping[str, Json]:
        return {
            "verb": self.verb.name,
            "annotator": self.annotator.digest,
            "pool": [annotator.name for annotator in self.panel.pool.annotators],
            "served": self.judge.params,
            "flip_probability": self.panel.flip_probability,
            "keyed_on": self.keyed_on,
            "order": self.order,
            **({"input": "apart"} if self._shows_inputs else {}),
            **guard_params(self.run, self.judge),
        }

    def _subjects(self, chunk: int) -> Iterator[tuple[Showings, list[Preference]]]:
        pool, seed = self.panel.pool, self.run.config.seed
        for place, match in enumerate(self.matched(chunk)):
            drawn_by = self._drawn_by(match)
            if assign(pool, drawn_by, seed) is self.annotator:
                row = self._row(match)
                orders: tuple[Order, ...] = ("as_given", "swapped")
                if self.order != "both":
                    orders = orders[1:] if shown_swapped(drawn_by, seed) else orders[:1]
                for order in orders if row.status == PENDING else orders[:1]:
                    yield (Showing(match=match, row=row, place=place, order=order),), [row]

    def _requests(self, chunk: int, replies: Replies) -> list[AnyRequest]:
        """Ask about first showings of matches, then about second ones, several pairs per prompt.

        A retry asks about each pair in a separate prompt.
        """
        alone = super()._requests(chunk, replies)
        size = 1 if replies.had else self.annotator.batch_size
        found = [one for one in alone if one.settled]
        # Pairs with an input have another form of prompt.
        kinds = dict[tuple[bool, bool], list[Showing]]()
        seen = set[int]()
        for (showing,) in (one.subject for one in alone if not one.settled):
            kind = (showing.place in seen, bool(self._instruction(showing.match)[1]))
            seen.add(showing.place)
            kinds.setdefault(kind, []).append(showing)
        for _, shown in sorted(kinds.items(), key=lambda kind: kind[0]):
            for at in range(0, len(shown), size):
                subject = tuple(shown[at : at + size])
                found.append(
                    PairRequest(
                        subject=subject,
                        rows=[showing.row for showing in subject],
                        pose=self._pose,
                        most=replies.most,
                        attempts=replies.had,
                    )
                )
        return found

    def _judgements(self, requests: Sequence[AnyRequest], replies: Replies) -> list[Preference]:
        by_match = dict[int, list[AnyRequest]]()
        for one in requests:
            by_match.setdefault(one.subject[0].place, []).append(one)
        return [
            row
            for _, alike in sorted(by_match.items())
            for row in replies.find_rows(alike[0].rows) or [self._preference(*alike)]
        ]

    def _preference(self, first: AnyRequest, swapped: AnyRequest | None = None) -> Preference:
        """Return the row of a match after the last reply, or after those to both orders."""
        ((showing,), (row,)), readings = (first.subject, first.rows), first.readings
        if not first.attempts:
            return row
        order, texts, (reading,) = showing.order, [first.text], readings
        if swapped is not None:
            order, reading = "both", reconcile(reading, swapped.readings[0])
            texts.append(swapped.text)
        row = replace(row, order=order, text="\n\n".join(texts), status=reading.status)
        return self._fill(row, reading.value, 0)

    def _fill(self, row: Preference, value: PairChoice, place: int) -> Preference:
        del place
        return replace(row, preferred=value.preferred)

    def _pose(self, subject: Showings, attempt: int) -> Posed[PairChoice]:
        pairs = [self._comparison(showing) for showing in subject]
        about = [[pair.key for pair in pairs], [pair.order for pair in pairs]]
        name = row_id("ask", about)
        question = ask(self.annotator, pairs, self.guard(name))
        return Posed(question, name, derive_seed(self.run.config.seed, "annotate", about, attempt))

    def _row(self, match: Match) -> Preference:
        """Return the row of a match before an annotator is asked, or decided without one."""
        first, second = match
        seed, flip_probability = self.run.config.seed, self.panel.flip_probability
        status: str = Status.SCORED
        preferred = tossed = None
        if "failed" in (first.finish_reason, second.finish_reason):
            # A failed request gave nothing that could be preferred.
            status = Status.FAILED
        elif _normal(first) == _normal(second):
            preferred = "tie"
        elif (tossed := coin(self._drawn_by(match), seed, flip_probability)) is not None:
            preferred = tossed
        else:
            status = PENDING
        ids = first.candidate_id, second.candidate_id
        return Preference(
            preference_id=row_id("pref", [*ids, self.identity]),
            prompt_id=first.prompt_id,
            iteration=self.iteration,
            first_id=ids[0],
            second_id=ids[1],
            annotator=self.annotator.name,
            preferred=preferred,
            flipped=tossed is not None,
            order="as_given",
            text="",
            status=str(status),
        )

    def _drawn_by(self, match: Match) -> str:
        """Return the key of all draws for a match."""
        if self.keyed_on == "instruction":
            return match[0].prompt_id
        return row_id("match", [candidate.candidate_id for candidate in match])

    def _comparison(self, showing: Showing) -> Comparison:
        instruction, given = self._instruction(showing.match)
        first, second = showing.match
        return Comparison(
            prompt=instruction,
            first=first.text,
            second=second.text,
            key=showing.row.preference_id,
            order=showing.order,
            input=given,
        )

    def _instruction(self, match: Match) -> tuple[str, str | None]:
        """Return the instruction, and separately its input if the prompts keep inputs apart."""
        instruction = self.run.prompts[match[0].prompt_id].instruction
        return parted_input(instruction) if self._shows_inputs else (instruction, None)

    @property
    def _shows_inputs(self) -> bool:
        return self.run.config.prompts.input == "headed"


def annotator_client(run: Run, annotator: Annotator) -> EngineClient:
    """Return the client of an annotator's model, which is sampled as its profile says."""
    served = run.models.annotators[annotator.model]
    again = Sampling(
        temperature=max(annotator.temperature, RETRY_TEMPERATURE),
        top_p=annotator.top_p,
        max_tokens=annotator.max_tokens,
        logit_bias=annotator.logit_bias,
    )
    again = again if annotator.short else with_room(run, served, again)
    first = replace(again, temperature=annotator.temperature)
    return EngineClient(run=run, served=served, first=first, again=again, judge=True)
