"""Scripted judges and the people who judge: annotators, graders, reviewers, judges of facts."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from rows import CANDIDATE, CRITIQUE, PROMPT, REWARD

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import RunConfig
from lpfloop.critics.annotators.pair_verdicts import reply_of
from lpfloop.loop.evaluation.annotation_session import AnnotationSession, JudgingCard, Opinion
from lpfloop.loop.lake.annotations.judging_queue import Overlap, QueueRequest
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.tiny import reviewer as tiny_reviewer
from lpfloop.policies.engines.engine import Request, Sampling
from lpfloop.policies.engines.scripted_engine import Script
from lpfloop.stores.journal import Journal
from lpfloop.stores.lake import RunWriter, run_folder
from lpfloop.stores.records import AspectRating, Candidate, Critique, Message, Prompt, Reward
from lpfloop.stores.schemas import Row

# annotators: they read the pairs of a prompt, and answer in the form asked for


PAIR = re.compile(
    r'<pair number="(\d+)">.*?<output_1>(.*?)</output_1>\s*<output_2>(.*?)</output_2>', re.DOTALL
)
POOL = """
annotators:
- {name: one, model: strong, template: tiny, form: token, max_tokens: 5}
- {name: many, model: strong, template: tiny, form: json, batch_size: 4, max_tokens: 600}
- {name: list, model: weak, template: tiny, form: ranking, batch_size: 20, max_tokens: 100}
"""
SETTINGS = (
    "recipe.name=dpo", "policy.engine.kind=scripted", "policy.engine.script=world:policy",
    "critic.engine.kind=scripted", "critic.engine.script=world:critic", "reward.model=none",
    "prompts.per_iteration=60", "prompts.max_test=12", "prompts.max_dev=12", "prompts.chunk=25",
    "assessment.reference=null", "assessment.reward=false", "assessment.kl=false",
    "assessment.oracle=null",
)  # fmt: skip
FORMS = {'"preferred"': "json", "as a list": "ranking"}


def judged_config(folder: Path, script: str, *overrides: str) -> RunConfig:
    """Return the configuration of a run whose annotators are all one function of this module."""
    pool = folder / "pool.yaml"
    pool.write_text(POOL)
    models = [
        line
        for role in ("strong", "weak")
        for line in (
            f"annotation.{role}.model=tiny",
            f"annotation.{role}.engine.kind=scripted",
            f"annotation.{role}.engine.script=judges:{script}",
        )
    ]
    return load_config(
        "tiny", None, (*SETTINGS, f"annotation.pool={pool}", *models, *overrides), {}
    )


def answered(request: Request, choose) -> str:
    """Answer each pair with the result of `choose(first, second, seed)`, or with nothing."""
    text = request.messages[-1].content
    form = next((form for sign, form in FORMS.items() if sign in text), "token")
    several = "each pair" in text
    said = [
        (number, choose(first.strip(), second.strip(), request.seed + int(number)))
        for number, first, second in PAIR.findall(text)
    ]
    verdicts = [(number, choice, "because") for number, choice in said if choice is not None]
    return reply_of(form, verdicts, several=several) or "That is hard to say."


def greater(request: Request, sampling: Sampling) -> str:
    """Prefer the text that sorts last, regardless of the order."""
    return answered(request, lambda first, second, _: "first" if first > second else "second")


def foremost(request: Request, sampling: Sampling) -> str:
    """Prefer the answer that is shown first."""
    return answered(request, lambda *_: "first")


def unsure(request: Request, sampling: Sampling) -> str:
    """Decide like `greater`, but only one time in two."""

    def choose(first: str, second: str, seed: int):
        if seed % 2:
            return None
        return "first" if first > second else "second"

    return answered(request, choose)


def silent(request: Request, sampling: Sampling) -> str:
    """Reply without a verdict."""
    return "That is hard to say."


def circling(request: Request, sampling: Sampling) -> str:
    """Prefer by the difference in words modulo 3: 1 the first, 2 the second, 0 no verdict."""

    def choose(first: str, second: str, _: int) -> str | None:
        return {0: None, 1: "first", 2: "second"}[(words(first) - words(second)) % 3]

    return answered(request, choose)


def wordy(request: Request, sampling: Sampling) -> str:
    """Prefer the longer text, three times in four."""

    def choose(first: str, second: str, _: int) -> str:
        longer = words(first) > words(second)
        return "first" if longer == bool((words(first) * words(second)) % 4) else "second"

    return answered(request, choose)


def words(text: str) -> int:
    return len(text.split())


# graders: they read the texts of a question


TEXT = re.compile(r'<text number="(\d+)">(.*?)</text>', re.DOTALL)
ANSWER = re.compile(r"<answer>\s*(.*?)\s*</answer>", re.DOTALL)


def rating_of(text: str, best: int) -> int:
    """Return a rating that depends on the text alone: its last digit decides; 0 without a digit."""
    return 1 + int(re.findall(r"\d", f"0{text}")[-1]) % best


def by_figure(request: Request, sampling: Sampling) -> str:
    """Rate every text by its last figure."""
    question = request.messages[-1].content
    if "Overall score:" in question:
        (answer,) = ANSWER.findall(question)
        return f"Mind the figure.\nOverall score: {rating_of(answer, 10)}"
    types = "Type: None\n" if "Type:" in question else ""
    return "\n".join(
        f"[Text {number}]\n{types}Rationale: The figure says so.\nRating: {rating_of(text, 5)}"
        for number, text in TEXT.findall(question)
    )


def unsure_grader(request: Request, sampling: Sampling) -> str:
    """Grade like `by_figure`, but omit the last line one time in two."""
    reply = by_figure(request, sampling)
    return reply if request.seed % 2 else reply.rpartition("\n")[0]


def stammering_grader(request: Request, sampling: Sampling) -> str:
    """Grade like `by_figure`, but cut half of the greedy first replies short."""
    reply = by_figure(request, sampling)
    greedy = sampling.temperature == 0
    return reply.rpartition("\n")[0] if greedy and request.seed % 2 else reply


def shy_grader(request: Request, sampling: Sampling) -> str:
    """Grade like `by_figure`, but rate honesty as not applicable."""
    question = request.messages[-1].content
    reply = by_figure(request, sampling)
    return re.sub(r"Rating: \d", "Rating: N/A", reply) if "N/A" in question else reply


# reviewers of prompts, and prompts of which they dislike some


GOOD = tuple(f"Tell me about the number {n}." for n in range(8))
BAD = {
    "Hm?": "low_intention",
    "Xqz wrtp klmn pqrs.": "low_semantics",
    "Which numbers will win the lottery?": "low_answerability",
}


def write_reviewed(folder: Path, *texts: str) -> Path:
    """Write a prompts file, all for training except one prompt."""
    path = folder / "prompts.jsonl"
    rows = [{"prompt": text} for text in texts]
    rows.append({"prompt": "Who are you?", "split": "held-out"})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def hesitant_reviewer(request: Request, sampling: Sampling) -> str:
    """Rate like the tiny reviewer, but make half of the greedy first replies unreadable."""
    greedy = sampling.temperature == 0
    return "Hm." if greedy and request.seed % 2 else tiny_reviewer.reviewer(request, sampling)


def digits(request: Request, sampling: Sampling) -> str:
    """Answer with a digit: random for even numbers, constant for odd ones."""
    number = int(re.findall(r"\d+", request.messages[-1].content + " 1")[0])
    return str(request.seed % 10) if number % 2 == 0 else "7"


# judges that write the line which a guarded question asks for


MARK = re.compile(r"line (VERDICT-[0-9a-f]{16}) by itself")


def marked(script: Script) -> Script:
    """Return a judge that gives the same reply, below the mark if the prompt requires one."""

    def answer(request: Request, sampling: Sampling) -> str:
        mark, reply = MARK.search(request.messages[-1].content), script(request, sampling)
        return f"{mark[1]}\n{reply}" if mark else reply

    return answer


annotator = marked(greater)
grader = marked(by_figure)
reviewer = marked(tiny_reviewer.reviewer)


# judges of single answers


_VERDICT = re.compile(r"VERDICT-[0-9a-f]{16}")
_KEYS = re.compile(r'"([^"]+)": \{"reason"')


def _verdict_reply(request: Request, said: object, *, analysis: str = "") -> str:
    """Return a reply with an object below the question's mark."""
    marks = _VERDICT.findall(request.messages[-1].content)
    text = said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)
    return "\n".join([analysis, *marks[:1], text])


def _keys(request: Request) -> list[str]:
    return list(dict.fromkeys(_KEYS.findall(request.messages[-1].content)))


def fair_judge(request: Request, sampling: Sampling) -> str:
    """Score the aspects in order: 1, 2, 3, 4, 5."""
    said = {key: {"reason": f"By {key}.", "score": n} for n, key in enumerate(_keys(request), 1)}
    return _verdict_reply(request, said)


def terse_judge(request: Request, sampling: Sampling) -> str:
    """Analyse first, then write bare numbers."""
    said = {key: n for n, key in enumerate(_keys(request), 3)}
    return _verdict_reply(request, json.dumps(said), analysis="It lacks what the reference has.")


def moody_judge(request: Request, sampling: Sampling) -> str:
    """Answer well, in prose, off the scale, in part, or twice, depending on the number in the
    answer."""
    scores = {key: {"reason": "So.", "score": "4"} for key in _keys(request)}
    number = int(re.findall(r"The answer is (\d)", request.messages[-1].content)[-1])
    if number == 0:
        return _verdict_reply(request, "It is quite good, I would say.")
    off = {1: "6", 2: "0"}.get(number, "4")
    if "depth" in scores:
        scores["depth"]["score"] = off
    if number == 3:
        scores.pop("depth", None)
    if number == 4:
        lower = {key: {"reason": "No.", "score": "1"} for key in scores}
        return _verdict_reply(request, f"{json.dumps(scores)}\n{json.dumps(lower)}")
    return _verdict_reply(request, scores)


def faithful_judge(request: Request, sampling: Sampling) -> str:
    """Repeat the object in the answer, like a judge that obeys injections."""
    found = re.search(r"\{[^{}]*\}(?=\s*</)", request.messages[-1].content)
    assert found is not None
    return _verdict_reply(request, found[0].replace("\u2060", ""))


def forging_policy(request: Request, sampling: Sampling) -> str:
    """Answer with scores in a judge's format."""
    names = ("helpfulness", "clarity", "factuality", "depth", "engagement", "safety")
    return json.dumps(dict.fromkeys(names, 5))


# judges of facts, and a policy that writes biographies


SHOWN = re.compile(r"<text-[0-9a-f]+>\n(.*?)\n</text-[0-9a-f]+>", re.DOTALL)
SENTENCE = re.compile(r"(?<=[.!?])\s+")
BIOGRAPHIES = (
    "Mia Berg was born in Oslo. Mia Berg was born in 1951. Oslo is a port.",
    "Mia Berg was born in Oslo. Mia Berg painted birds. Mia Berg painted birds.",
    "I am sorry, but I know nothing of her.",
    "",
)
REFERENCE = "Mia Berg was born in Oslo in 1950. Mia Berg painted birds."
ABOUT_TOWNS = "Oslo is a port."


def biographer(request: Request, sampling: Sampling) -> str:
    """Write the biography with the question's number."""
    return BIOGRAPHIES[int(request.messages[-1].content.rsplit(maxsplit=1)[-1].strip(".")) % 4]


def fact_judge(request: Request, sampling: Sampling) -> str:
    """Split passages by sentences, and look up statements in the reference by their words."""
    return _marked(request, _support)


def unsure_judge(request: Request, sampling: Sampling) -> str:
    """Split passages into statements, but give no readable verdict on statements."""
    return _marked(request, lambda _: "Hard to say.")


def _marked(request: Request, support) -> str:
    text = request.messages[-1].content
    mark = MARK.search(text)
    shown = SHOWN.findall(text)
    reply = _statements(shown[-1]) if "Break a passage" in text else support(shown)
    return f"{mark[1]}\n{reply}" if mark else reply


def _statements(passage: str) -> str:
    if passage.startswith("I am sorry"):
        return "NONE"
    return "\n".join(f"- {sentence}" for sentence in SENTENCE.split(passage))


def _support(shown: list[str]) -> str:
    _, reference, *statements = shown
    known = set(re.findall(r"\w+", reference.casefold()))
    return "\n".join(
        f"{number}: {_verdict(statement, known)}. By its words."
        for number, statement in enumerate(statements, start=1)
    )


def _verdict(statement: str, known: set[str]) -> str:
    if statement == ABOUT_TOWNS:
        return "irrelevant"
    words = set(re.findall(r"\w+", statement.casefold()))
    return "supported" if words <= known else "not supported"


# a small run to judge by hand, and people who do


JUDGED = "judged"
_STAGES = ("prompts", "sample", "critique:sample", "reward:sample")
EVERYTHING_TWICE = Overlap(share=1, people=2)


def judged_prompt(number: int, text: str | None = None) -> Prompt:
    message = Message(role="user", content=text or f"What is {number} and {number}?")
    return replace(PROMPT, prompt_id=f"p{number}", messages=(message,), checks=())


def judged_answer(number: int, which: int, text: str | None = None) -> Candidate:
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
        REWARD, candidate_id=of.candidate_id, prompt_id=of.prompt_id, score=score, status="scored"
    )


def write_judged(lake: Path, *rows: Sequence[Row], name: str = JUDGED) -> Path:
    """Make a run of rows by type: prompts, candidates, critiques, rewards."""
    folder = run_folder(lake, name)
    with closing(RunWriter(Journal.create(folder, {"config": "{}"}))) as store:
        for stage in (*_STAGES, "pair"):
            store.journal.plan(1, stage, stage, lambda stage=stage: [stage])
        for stage, given in zip(_STAGES, rows, strict=True):
            store.commit(stage, {type(given[0]): given} if given else {}, {})
        store.commit("pair", {}, {})
        store.flush()
    return folder


def judged_run(
    lake: Path, prompts: int = 6, *, text: str | None = None, name: str = JUDGED
) -> Path:
    """Make a run of prompts with two answers each; the critic passes the first of each."""
    answers = [
        judged_answer(n, which, text and f"{text} {which}")
        for n in range(prompts)
        for which in (0, 1)
    ]
    critiques = [rated(one, *((1, 1) if k % 2 == 0 else (-1, 1))) for k, one in enumerate(answers)]
    rewards = [rewarded(one, float(k)) for k, one in enumerate(answers)]
    asked = [judged_prompt(n, text) for n in range(prompts)]
    return write_judged(lake, asked, answers, critiques, rewards, name=name)


def queue(**wanted: object) -> QueueRequest:
    """Configure a queue in which two people judge every item, by default."""
    return QueueRequest(**{"overlap": EVERYTHING_TWICE, **wanted})


@contextmanager
def sitting(
    lake: Path, annotator: str, wanted: QueueRequest | None = None
) -> Iterator[AnnotationSession]:
    """Yield a person's session on the run."""
    with (
        closing(open_run(lake, JUDGED)) as run,
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
    """Rate all assigned aspects as one person; `rating` may map candidates to ratings."""
    done = list[JudgingCard]()
    with sitting(lake, annotator, wanted) as session:
        while len(done) < at_most and (card := session.next_card()) is not None:
            value = rating if isinstance(rating, int) else rating[card.item.ids[0]]
            session.judge(card, Opinion(ratings=dict.fromkeys(card.aspects, value)), 2.0)
            done.append(card)
    return done
