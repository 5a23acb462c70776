"""The KL divergence of a policy from M_0, estimated on one sample a prompt.

KL(pi || pi_0) = E_{y ~ pi}[log pi(y|x) - log pi_0(y|x)], in nats an answer. Both terms are measured
on the same text by the same call, end token included, so M_0's divergence from itself is 0. Each
model gets its own prompt: a policy with its control text, M_0 without one. An answer cut at
`max_tokens` lacks the end token, and is left out.
"""

from collections.abc import Sequence

from ...configs.engines import WHOLE
from ...configs.load import semantic
from ...stores.keys import Json
from ...stores.records import Candidate, Message, Score
from ..data.stage_names import step_params
from ..run.handles import Prompts, Rows
from ..run.iteration import Iteration, add_control
from ..run.models import Served
from ..run.reporter import UnitStats
from ..run.run import Verb
from ..run.stage import Stage
from ..stages.sample import answers
from .metrics import score_of

MEASURE_LOGPROB = Verb("logprob")
KL, LOGPROB = "kl", "logprob"


def divergence(
    it: Iteration, prompts: Prompts, benchmark: str, step: int | None = None
) -> Rows[Score]:
    """Return one `kl` score for each prompt whose sample is a whole answer.

    `step` is the training step of an intermediate policy.
    """
    samples = _samples(it, prompts, benchmark, step)
    own = _measure(it, LOGPROB, it.policy, benchmark, samples)
    return _measure(it, KL, it.run.models.initial, benchmark, samples, own)


def _samples(it: Iteration, prompts: Prompts, benchmark: str, step: int | None) -> Rows[Candidate]:
    """Draw y from pi(x) at temperature 1, from the whole distribution."""
    unscaled = {**WHOLE, "temperature": 1.0}
    sampling = it.run.config.evaluation.model_copy(update=unscaled)
    params: Json = {
        "policy": it.policy.params,
        "sampling": semantic(sampling),
        "for": KL,
        **step_params(step),
    }
    return answers(it, prompts, f"kl-sample:{benchmark}", "sample", sampling, params)


def _measure(
    it: Iteration,
    metric: str,
    served: Served,
    benchmark: str,
    samples: Rows[Candidate],
    own: Rows[Score] | None = None,
) -> Rows[Score]:
    """Score each sample by a model's log-probability; with `own`, by how far it is below `own`."""
    params: Json = {"metric": metric, "benchmark": benchmark, "model": served.params}
    pending = it.work(MEASURE_LOGPROB, params, samples, *([] if own is None else [own]))

    def run_units(stage: Stage) -> None:
        # Not `Run.make`: answers without a score are counted, too.
        for unit in stage.units():
            whole = [c for c in it.chunk(samples, unit.chunk) if c.finish_reason == "stop"]
            # The probability of an answer after a thought differs from the probability of the
            # answer alone.
            values = _logprobs(it, served, [c for c in whole if c.reasoning is None])
            if own is not None:
                before = {s.candidate_id: s.value for s in it.chunk(own, unit.chunk)}
                values = {c: before[c] - value for c, value in values.items() if c in before}
            scores = [
                score_of(it, benchmark, metric, values[c], prompt=answer.prompt_id, candidate=c)
                for answer in whole
                for c in [answer.candidate_id]
                if c in values
            ]
            unscored = len(whole) - len(scores)
            stage.commit(unit, {Score: scores}, UnitStats(rows=len(scores), unscored=unscored))

    label, places = f"{metric}:{benchmark}", it.run.places.of(served)
    planned = it.run.run_stage(it.number, label, pending, run_units, places=places)
    return Rows(row_type=Score, stages=(planned,))


def _logprobs(it: Iteration, served: Served, answers: Sequence[Candidate]) -> dict[str, float]:
    """Return the log-probability of each answer by its id, if the engine can measure it."""
    if not answers:
        return {}
    conversations = [
        (*messages, Message(role="assistant", content=a.text))
        for a in answers
        for messages in [add_control(it.run.prompts[a.prompt_id].messages, served.control)]
    ]
    logprobs = it.run.engine(served).logprobs(conversations)
    measured = zip(answers, logprobs, strict=True)
    return {a.candidate_id: found.logprob for a, found in measured if found is not None}
