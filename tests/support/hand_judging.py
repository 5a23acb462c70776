"""A small run to judge by hand, and people who do."""

import json
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from examples import CANDIDATE, CRITIQUE, PROMPT, REWARD
from lpfloop.loop.data.assignments import Overlap
from lpfloop.loop.evaluation.annotation_session import AnnotationSession, JudgingCard, Opinion
from lpfloop.loop.lake.annotations.judging_queue import QueueRequest
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.stores.journal import Journal
from lpfloop.stores.lake import RunWriter, run_folder
from lpfloop.stores.records import AspectRating, Candidate, Critique, Message, Prompt, Reward
from lpfloop.stores.schemas import Row

RUN = "judged"
STAGES = ("prompts", "sample", "critique:sample", "reward:sample")
EVERYTHING_TWICE = Overlap(share=1, people=2)


def prompt(number: int, text: str | None = None) -> Prompt:
    message = Message(role="user", content=text or f"What is {number} and {number}?")
    return replace(PROMPT, prompt_id=f"p{number}", messages=(message,), checks=())


def answer(number: int, which: int, text: str | None = None) -> Candidate:
    return replace(
        CANDIDATE,
        candidate_id=candidate_id(number, which),
        prompt_id=f"p{number}",
        text=text or f"Answer {which} to prompt {number}.",
    )


def candidate_id(number: int, which: int) -> str:
    return f"cand-{number:015x}{which:x}"


def rated(of: Candidate, *ratings: int, critic: str = "m0") -> Critique:
    names = ("Correctness", "Readability")
    return replace(
        CRITIQUE,
        critique_id=f"crit-{of.candidate_id}-{critic}",
        candidate_id=of.candidate_id,
        prompt_id=of.prompt_id,
        critic=critic,
        text="SECRET of the critic",
        aspects=tuple(
            AspectRating(name=name, rating=rating, comment="SECRET")
            for name, rating in zip(names, ratings, strict=False)
        ),
    )


def rewarded(of: Candidate, score: float) -> Reward:
    return replace(
        REWARD,
        candidate_id=of.candidate_id,
        prompt_id=of.prompt_id,
        score=score,
        status="scored",
    )


def write_run(lake: Path, *rows: Sequence[Row], name: str = RUN) -> Path:
    """Make a run of rows by type: prompts, candidates, critiques, rewards."""
    folder = run_folder(lake, name)
    with closing(RunWriter(Journal.create(folder, {"config": "{}"}))) as store:
        for stage in (*STAGES, "pair"):
            store.journal.plan(1, stage, stage, lambda stage=stage: [stage])
        for stage, given in zip(STAGES, rows, strict=True):
            store.commit(stage, {type(given[0]): given} if given else {}, {})
        store.commit("pair", {}, {})
        store.flush()
    return folder


def plain_run(lake: Path, prompts: int = 6, *, text: str | None = None, name: str = RUN) -> Path:
    """Make a run of prompts with two answers each; the critic passes the first, and so on."""
    answers = [
        answer(n, which, text and f"{text} {which}") for n in range(prompts) for which in (0, 1)
    ]
    critiques = [rated(one, *((1, 1) if k % 2 == 0 else (-1, 1))) for k, one in enumerate(answers)]
    rewards = [rewarded(one, float(k)) for k, one in enumerate(answers)]
    asked = [prompt(n, text) for n in range(prompts)]
    return write_run(lake, asked, answers, critiques, rewards, name=name)


def queue(**wanted: object) -> QueueRequest:
    """Ask for a queue in which everything is judged by two people, unless told otherwise."""
    return QueueRequest(**{"overlap": EVERYTHING_TWICE, **wanted})


@contextmanager
def sitting(
    lake: Path, annotator: str, wanted: QueueRequest | None = None
) -> Iterator[AnnotationSession]:
    """Give a person's session on the run."""
    with (
        closing(open_run(lake, RUN)) as run,
        closing(AnnotationSession(run, annotator, wanted or queue())) as session,
    ):
        session.begin()
        yield session


def rate_all(
    lake: Path,
    annotator: str,
    rating: dict[str, int] | int,
    wanted: QueueRequest | None = None,
    *,
    at_most: int = 1000,
) -> list[JudgingCard]:
    """Let a person rate all aspects of what they are given; `rating` may be by candidate."""
    done = list[JudgingCard]()
    with sitting(lake, annotator, wanted) as session:
        while len(done) < at_most and (card := session.next_card()) is not None:
            value = rating if isinstance(rating, int) else rating[card.item.ids[0]]
            session.judge(card, Opinion(ratings=dict.fromkeys(card.aspects, value)), 2.0)
            done.append(card)
    return done


def lines(text: str) -> list[dict[str, object]]:
    """Read JSON lines."""
    return [json.loads(line) for line in text.splitlines()]
