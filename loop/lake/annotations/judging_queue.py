# pyright: basic
"""Which answers of a run people judge, and in which order: the most informative come first.

Models' ratings, rewards and the verifier's verdicts show which answers judges disagree on. They
decide only the order: people see none of them. There is one item a prompt, whose answers resemble
each other; an order depends only on the seed and on the stored rows.
"""

import json
from dataclasses import asdict, dataclass
from typing import Literal, Self, get_args

from ....configs.mistakes import did_you_mean
from ....stores.keys import canonical_json, digest
from ....stores.lake import RunReader
from ...data.assignments import Overlap
from ...data.files import InputError
from ...data.judged_candidates import TRUSTED, VISIBLE
from ..query.duckdb_rows import literal
from ..query.tables import QueryTables
from ..query.vocabulary import AGREEMENT, RATING

Judged = Literal["ratings", "pairs"]
SamplingRule = Literal["disagreement", "random"]
RULES: tuple[SamplingRule, ...] = get_args(SamplingRule)
ITEMS = 500
OVERLAP = Overlap(share=0.2, people=2)
PROMPTS = 4000
"""Of more prompts, so many are drawn before answers are ordered: a run may have millions."""
WHOLE = "kind in ('sample', 'refinement', 'external') and finish_reason = 'stop'"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRequest:
    """The items for people to judge: answers or pairs, their rule, task and iteration."""

    judged: Judged = "ratings"
    rule: SamplingRule = "disagreement"
    iteration: int | None = None
    task: str | None = None
    aspect: str | None = None
    items: int = ITEMS
    seed: int = 0
    overlap: Overlap = OVERLAP

    @property
    def facts(self) -> str:
        """The request as JSON."""
        return canonical_json(asdict(self))

    @property
    def name(self) -> str:
        """The name of its queue in the ledger."""
        return digest(asdict(self))[:12]


def rule_named(name: str) -> SamplingRule:
    """Return a sampling rule by its name.

    Raises:
        InputError: if the name is unknown.
    """
    for rule in RULES:
        if rule == name:
            return rule
    raise InputError(
        f"--order {name}: no such order; {did_you_mean(name, RULES)}the orders are "
        f"{', '.join(RULES)}"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedItem:
    """One answer, or two, of a prompt; `aspect` if it is to be judged in that alone."""

    prompt_id: str
    ids: tuple[str, ...]
    aspect: str | None = None

    @property
    def name(self) -> str:
        """Its name in the ledger, which is the same in every queue."""
        return canonical_json([self.prompt_id, sorted(self.ids), self.aspect])

    @classmethod
    def from_name(cls, name: str) -> Self:
        """Return the item of a name."""
        prompt_id, ids, aspect = json.loads(name)
        return cls(prompt_id=prompt_id, ids=tuple(ids), aspect=aspect)


def queue_items(run: RunReader, request: QueueRequest) -> list[str]:
    """Return the items of a queue, in order.

    Raises:
        InputError: if the run lacks answers to judge, or the signals that the rule sorts by.
    """
    where = "" if request.iteration is None else f"--iteration {request.iteration}: "
    if request.task is not None:
        tasks = run.scan("prompts", columns={"task"}).unique().collect()["task"].sort().to_list()
        if request.task not in tasks:
            raise InputError(f"--task {request.task}: the run's tasks are {', '.join(tasks)}")
    number = request.iteration
    if number is None:
        last = f"select max(iteration) as last from candidates where {WHOLE}"
        number = QueryTables(run, last).frame(last)["last"][0]
    sql = _query(request)
    tables: tuple[str, ...] = ("candidates", "critiques", "rewards", "scores")
    found = QueryTables(run, sql, dict.fromkeys(tables, number)).frame(sql)
    if found.is_empty():
        least = "prompt with two different whole answers"
        if request.judged == "ratings":
            least = "whole answers"
        raise InputError(f"{where}run {run.folder.name} contains no {least} to judge")
    if request.rule != "random" and not found["signals"][0]:
        raise InputError(
            f"--order {request.rule}: no model has rated these answers, of "
            f"{request.aspect or 'any aspect'}; take --order random"
        )
    return [
        JudgedItem(prompt_id=prompt_id, ids=tuple(ids), aspect=request.aspect).name
        for prompt_id, ids in found.select("prompt_id", "ids").iter_rows()
    ]


def _query(request: QueueRequest) -> str:
    """Return the SELECT of the best item of each prompt.

    How far judges contradict each other (`conflict`): the critic and the verifier, critics, and the
    critic and the reward. `place` is 1 for the best answer of its prompt by reward, 0 for the
    worst. Items with equal scores are in the order of a hash, another one for each seed.
    """
    task = "" if request.task is None else f"where task = {literal(request.task)}"
    aspect = "" if request.aspect is None else f"where name = {literal(request.aspect)}"
    trusted = " or ".join(f"starts_with(critic, {literal(prefix)})" for prefix in TRUSTED)
    if request.judged == "ratings":
        items = "select prompt_id, [candidate_id] as ids, conflict as score, signals from judged"
    else:
        # The critic prefers one, the reward model the other.
        items = """select prompt_id, [a.candidate_id, b.candidate_id] as ids, a.signals,
            coalesce((b.rating - a.rating) / 2 * (a.place - b.place), 0)
                + (a.conflict + b.conflict) / 4 as score
            from judged a join judged b using (prompt_id) where a.candidate_id < b.candidate_id"""
    order = "score desc, mixed" if request.rule == "disagreement" else "mixed"
    return f"""select prompt_id, ids, signals from (
    with drawn as (
        select prompt_id from candidates
        where {WHOLE} and prompt_id in (select prompt_id from prompts {task})
        group by prompt_id order by md5(prompt_id || {request.seed}) limit {PROMPTS}),
    answers as (
        select prompt_id, min(candidate_id) as candidate_id from candidates
        where {WHOLE} and regexp_matches(text, {literal(VISIBLE)})
            and prompt_id in (select prompt_id from drawn)
        group by prompt_id, text),
    by_aspect as (
        select candidate_id, avg(rating) as rating, (max(rating) - min(rating)) / 2 as spread,
            bool_and(rating = 1) as passed
        from (select candidate_id, unnest(aspects, recursive := true) from critiques
            where not ({trusted}) and candidate_id in (select candidate_id from answers)) {aspect}
        group by candidate_id, name),
    rated as (
        select candidate_id, avg(rating) as rating, avg(spread) as spread,
            bool_and(passed) as passed
        from by_aspect group by candidate_id),
    rewarded as (
        select candidate_id, arg_max(score, _place) as reward from rewards
        where score is not null and candidate_id in (select candidate_id from answers)
        group by candidate_id),
    verified as (
        select candidate_id, bool_and(value = 1) filter (starts_with(metric, '{RATING}'))
            = bool_and(value = 1) filter (metric = '{AGREEMENT}') as is_right
        from scores group by candidate_id),
    judged as (
        select *, count(rating) over () + count(reward) over () as signals,
            case when reward is not null then
                (rank() over (partition by prompt_id order by reward) - 1
                + (count(*) over (partition by prompt_id, reward) - 1) / 2)
                / nullif(count(reward) over (partition by prompt_id) - 1, 0) end as place,
            coalesce((passed != is_right)::int, 0) + coalesce(spread, 0)
                + coalesce(abs(passed::int - place), 0) as conflict
        from answers left join rated using (candidate_id) left join rewarded using (candidate_id)
            left join verified using (candidate_id)),
    items as ({items})
    select *, md5(array_to_string(ids, ' ') || {request.seed}) as mixed from items
    qualify row_number() over (partition by prompt_id order by {order}) = 1)
    order by {order} limit {request.items}"""
