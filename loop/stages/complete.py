"""The verb that completes prompts with a pool of models, each under a principle.

Every model has a separate stage over the same chunks of prompts, so changing one model reruns only
its stage. The models that answer a prompt are drawn beforehand (`assigning`).
"""

from dataclasses import replace

from ...configs.load import semantic
from ...configs.recipes import Completed
from ...configs.schema import SamplingConfig
from ...stores.journal_reader import Unit
from ...stores.keys import Json
from ...stores.records import Candidate, Prompt
from ..run.completers import Completers
from ..run.handles import Planned, Prompts, Rows
from ..run.iteration import Iteration
from ..run.model_pool import PoolModel
from ..run.models import Served
from ..run.run import Verb, Work
from .model_assignment import add_principle, principle_of, slots
from .sample import CandidateDrawing, Draw, draws

COMPLETE = Verb("complete")


def complete(it: Iteration, prompts: Prompts, *, n: int) -> Rows[Candidate]:
    """y_i ~ pi_i(principle_i, x): commit n completions a prompt, of as many models as there are.

    Raises:
        RuntimeError: if the run was opened as one that completes by no pool.
    """
    it.require(Completed, "complete")
    completers = it.run.completers
    if completers is None:
        raise RuntimeError("this run was opened without a pool of models: see `completers_of`")
    # Stages with the same model are adjacent, so that it is loaded once; the policy comes first,
    # since it may be loaded already.
    models = sorted(completers.pool.models, key=lambda m: (not m.is_policy, m.model or ""))
    stages = tuple(_complete(it, completers, model, prompts, n) for model in models)
    return Rows(row_type=Candidate, stages=stages, called=COMPLETE.name)


def _complete(
    it: Iteration, completers: Completers, model: PoolModel, prompts: Prompts, n: int
) -> Planned:
    """Pay the stage of one model: the completions that it was drawn for."""
    served = it.policy if model.is_policy else it.run.models.completers[model.name]
    sampling = model.sampling_of(it.run.config.policy.sampling)
    pending = Work(
        verb=COMPLETE,
        params=_params(completers, model, served, sampling, n),
        upstream=(prompts.identity,),
        reads=prompts.each_key,
    )
    drawing = CandidateDrawing(
        run=it.run,
        iteration=it.number,
        policy=served,
        kind="sample",
        sampling=sampling,
        model=model.name,
    )

    def work(unit: Unit) -> list[Draw]:
        return [
            draw
            for prompt in prompts.chunks[unit.chunk]
            for draw in _draws(it, completers, model, prompt, n, unit.key)
        ]

    return it.run.run_stage(
        it.number,
        f"{COMPLETE.name}:{model.name}",
        pending,
        lambda stage: drawing.pay(stage, work),
        places=it.run.places.of(served),
    )


def _params(
    completers: Completers, model: PoolModel, served: Served, sampling: SamplingConfig, n: int
) -> Json:
    mix = completers.mix_of(model)
    principles: Json = None if mix is None else [model.principles, mix.digest]
    return {
        "model": model.name,
        "served": served.params,
        "sampling": semantic(sampling),
        "principles": principles,
        "weights": dict(completers.pool.weights),
        "n": n,
    }


def _draws(
    it: Iteration, completers: Completers, model: PoolModel, prompt: Prompt, n: int, identity: Json
) -> list[Draw]:
    seed, mix = it.run.config.seed, completers.mix_of(model)
    drawn = slots(completers.pool.weights, prompt.prompt_id, n, seed)
    own = [slot for slot in drawn if slot.model == model.name]
    principles = [None if mix is None else principle_of(mix, prompt, slot, seed) for slot in own]
    ids = draws(it, identity, prompt, count=len(own))
    return [
        replace(
            draw,
            messages=add_principle(prompt.messages, principle, model),
            principle=None if principle is None else str(principle),
        )
        for draw, principle in zip(ids, principles, strict=True)
    ]
