"""The stages that draw candidates of the policy: its samples, and its refinements."""

from collections.abc import Callable, Sequence

from ...configs.load import semantic
from ...configs.schema import SamplingConfig
from ...stores.keys import Json
from ...stores.records import Candidate, CandidateKind, Critique
from ..run.draws import Draw, draws
from ..run.handles import Best, Prompts, Rows
from ..run.run import Work
from ..run.turn import Turn
from .best_draft import promising
from .draw_candidates import CandidateDrawing


def sample(
    it: Turn,
    prompts: Prompts,
    *,
    n: int,
    top_p: float | None = None,
    label: str,
    purpose: str | None = None,
) -> Rows[Candidate]:
    """y_i ~ pi(x): commit n candidates a prompt.

    `purpose` stands in the keys, so that what is drawn for it is never what another sampling of the
    same prompts draws.
    """
    config = it.run.config.policy.sampling
    if top_p is not None:
        config = config.model_copy(update={"top_p": top_p})

    def work(chunk: int, identity: Json) -> list[Draw]:
        return [
            draw
            for prompt in prompts.chunks[chunk]
            for draw in it.draws(prompt, prompt.messages, n, identity)
        ]

    params: dict[str, Json] = {"policy": it.policy.params, "sampling": semantic(config), "n": n}
    if purpose is not None:
        params["for"] = purpose
    owed = Work(verb="sample", params=params, upstream=(prompts.identity,), reads=prompts.each_key)
    return _drawn(it, label, "sample", config, owed, work)


def refine(it: Turn, best: Best, critiques: Rows[Critique], *, m: int) -> Rows[Candidate]:
    """z_j ~ pi(x, y~, f(x, y~)): commit m refinements of each promising candidate."""
    config = it.run.config.policy.sampling

    def work(chunk: int, identity: Json) -> list[Draw]:
        feedback = {c.candidate_id: c for c in it.chunk(critiques, chunk)}
        rewards = {r.candidate_id: r for r in it.chunk(best.rewards, chunk)}
        drafts = it.chunk(best.candidates, chunk)
        return [
            draw
            for draft in promising(drafts, rewards, feedback)
            for draw in _refinements(it, draft, feedback[draft.candidate_id], m, identity)
        ]

    params: Json = {
        "policy": it.policy.params,
        "sampling": semantic(config),
        "critic": it.run.critic.digest,
        "m": m,
    }
    owed = it.work("refine", params, best.candidates, best.rewards, critiques)
    return _drawn(it, "refine", "refinement", config, owed, work)


def _drawn(
    it: Turn,
    label: str,
    kind: CandidateKind,
    sampling: SamplingConfig,
    owed: Work,
    work: Callable[[int, Json], Sequence[Draw]],
) -> Rows[Candidate]:
    drawing = CandidateDrawing(
        run=it.run, iteration=it.number, policy=it.policy, kind=kind, sampling=sampling
    )
    with it.run.stage(it.number, label, owed) as stage:
        drawing.pay(stage, lambda unit: work(unit.chunk, unit.key))
    return Rows(row_type=Candidate, stages=(stage.planned,))


def _refinements(
    it: Turn, draft: Candidate, critique: Critique, count: int, identity: Json
) -> list[Draw]:
    prompt = it.run.prompts[draft.prompt_id]
    return draws(
        it.run.config.seed,
        identity,
        prompt_id=prompt.prompt_id,
        messages=it.run.critic.reflect(prompt, draft.text, critique.text),
        count=count,
        parent_id=draft.candidate_id,
        critique_id=critique.critique_id,
    )
