"""Self-reflection: the promising candidate of each prompt, and its refinements (Section 3.2)."""

from collections.abc import Mapping, Sequence

from ...configs.load import semantic
from ...configs.recipes import Refined
from ...configs.schema import ConfigError
from ...critics.guard import without_mark
from ...stores.journal_reader import Unit
from ...stores.keys import Json
from ...stores.records import SCORED, Candidate, Critique, Reward
from ..data.judged_candidates import Deciding, verdicts
from ..data.stage_names import in_round
from ..run.handles import Best, Prompts, Rows
from ..run.iteration import Iteration
from ..run.run import Verb
from .sample import Draw, DrawnBy, draw_candidates, draws

REFINE, REVISE = Verb("refine", semantics=2), Verb("revise")


def best(candidates: Rows[Candidate], *, by: Rows[Reward]) -> Best:
    """y~ = argmax r(x, y): the promising candidate of each prompt."""
    return Best(candidates=candidates, rewards=by)


def refine(
    it: Iteration,
    best: Best,
    critiques: Rows[Critique],
    *,
    m: int,
    which: Refined = "all",
    number: int = 1,
) -> Rows[Candidate]:
    """z_j ~ pi(x, y~, f(x, y~)): commit m refinements of each promising candidate.

    With `which` "failures", only candidates that the critic does not pass are refined; passing ones
    are paired unchanged. If a candidate has several critiques, the worst one is used. `number` is
    the round of refinement, counted from 1.
    """
    config = it.run.config.policy.sampling

    def work(unit: Unit) -> list[Draw]:
        feedback = worst(it.chunk(critiques, unit.chunk))
        passed = _passed_candidates(it, critiques, unit.chunk, which)
        rewards = {r.candidate_id: r for r in it.chunk(best.rewards, unit.chunk)}
        drafts = it.chunk(best.candidates, unit.chunk)
        return [
            draw
            for draft in promising(drafts, rewards, feedback)
            if draft.candidate_id not in passed
            # Not by the unit's key: the ids would depend on the number of critic replies.
            for draw in _refinements(it, draft, feedback[draft.candidate_id], m, params)
        ]

    # Nor by `which`: a candidate that both refine has the same refinements.
    params: Mapping[str, Json] = {
        "policy": it.policy.params,
        "sampling": semantic(config),
        "critic": it.run.critic.digest,
        "m": m,
    }
    identity = params if which == "all" else {**params, "which": which, **_agreement(it)}
    pending = it.work(REFINE, identity, best.candidates, best.rewards, critiques)
    return draw_candidates(it, in_round("refine", number), "refinement", config, pending, work)


def revise(
    it: Iteration,
    drafts: Rows[Candidate],
    critiques: Rows[Critique],
    *,
    of: Prompts,
    which: Refined = "all",
) -> Rows[Candidate]:
    """y~ by the critic's model: commit its better answer to each draft that it could critique.

    The critic gets the question that the policy will get in reflection, about drafts `of` these
    prompts; with `which` "failures", only about drafts that it does not pass.

    Raises:
        ConfigError: if the critic is the verifier, which writes no answers.
    """
    if it.run.config.critic.kind == "verifier":
        raise ConfigError(
            "critic.kind is verifier, which writes no answers, and the recipe "
            f"{it.run.config.recipe.name} learns from a teacher: set critic.kind=feedback, and "
            "name one by --critic FOLDER or URL"
        )
    prompt_ids = {prompt.prompt_id for chunk in of.chunks for prompt in chunk}
    critic, settings = it.run.models.feedback, it.run.config.critic
    params: Mapping[str, Json] = {
        "critic": it.run.critic.digest,
        "served": critic.params,
        "sampling": semantic(settings.sampling),
        "of": of.identity,
        "which": which,
        **_agreement(it),
    }

    def work(unit: Unit) -> list[Draw]:
        feedback = worst(it.chunk(critiques, unit.chunk))
        passed = _passed_candidates(it, critiques, unit.chunk, which)
        return [
            draw
            for draft in it.chunk(drafts, unit.chunk)
            if draft.prompt_id in prompt_ids and draft.usable and draft.candidate_id not in passed
            if feedback[draft.candidate_id].status == SCORED
            for draw in _refinements(it, draft, feedback[draft.candidate_id], 1, params)
        ]

    pending = it.work(REVISE, params, drafts, critiques)
    by = DrawnBy(critic, settings.model, judge=True)
    return draw_candidates(it, REVISE.name, "refinement", settings.sampling, pending, work, by)


def worst(critiques: Sequence[Critique]) -> dict[str, Critique]:
    """Return the critique of each candidate with the lowest mean rating; of equals the first.

    An unread critique is returned only if it is the candidate's only one.
    """

    def severity(critique: Critique) -> tuple[bool, float]:
        return critique.status != SCORED, _mean_rating(critique)

    found: dict[str, Critique] = {}
    for critique in critiques:
        other = found.setdefault(critique.candidate_id, critique)
        if severity(critique) < severity(other):
            found[critique.candidate_id] = critique
    return found


def promising(
    candidates: Sequence[Candidate],
    rewards: Mapping[str, Reward],
    critiques: Mapping[str, Critique],
) -> list[Candidate]:
    """Return y~ = argmax r(x, y) for each prompt, in the order of the prompts' first candidates.

    Only whole answers with a readable critique are considered. Without a reward model the mean
    rating is the reward. Ties go to the lower candidate id.
    """
    best: dict[str, tuple[tuple[float, float], Candidate]] = {}
    for candidate in sorted(candidates, key=lambda c: c.candidate_id):
        critique = critiques.get(candidate.candidate_id)
        if not candidate.usable or critique is None or critique.status != SCORED:
            continue
        reward = rewards.get(candidate.candidate_id)
        score = float("-inf") if reward is None or reward.score is None else reward.score
        worth = (score, _mean_rating(critique))
        if candidate.prompt_id not in best or worth > best[candidate.prompt_id][0]:
            best[candidate.prompt_id] = (worth, candidate)
    order = dict.fromkeys(c.prompt_id for c in candidates)
    return [best[prompt_id][1] for prompt_id in order if prompt_id in best]


def _mean_rating(critique: Critique) -> float:
    ratings = [a.rating for a in critique.aspects if a.rating is not None]
    return sum(ratings) / len(ratings) if ratings else float("-inf")


def _deciding(it: Iteration) -> Deciding:
    return Deciding.of(it.run.config.model_dump(include={"critic", "pairs"}))


def _agreement(it: Iteration) -> Mapping[str, Json]:
    """Return how several critiques agree, if there are several."""
    agreement = _deciding(it).agreement
    return {} if agreement is None else {"agreement": agreement}


def _passed_candidates(
    it: Iteration, critiques: Rows[Critique], chunk: int, which: Refined
) -> frozenset[str]:
    """Return the candidates that the critic passes, which need not be refined."""
    if which == "all" or it.run.asks_most:
        return frozenset()
    verdict_rows = verdicts(it.frame(critiques, chunk), _deciding(it))
    return frozenset(verdict_rows.filter("success")["candidate_id"])


def _refinements(
    it: Iteration, draft: Candidate, critique: Critique, count: int, identity: Json
) -> list[Draw]:
    """(x, y~, f(x, y~)): draws of answers to the request to refine a draft after its critique."""
    prompt = it.run.prompts[draft.prompt_id]
    return draws(
        it,
        identity,
        prompt,
        messages=it.run.critic.reflect(prompt, draft.text, without_mark(critique.text)),
        count=count,
        parent_id=draft.candidate_id,
        critique_id=critique.critique_id,
    )
