"""Sampling the policy: y_i ~ pi(x), n candidates a prompt."""

from ...configs.load import semantic
from ...stores.keys import Json
from ...stores.records import Candidate
from ..run.draws import Draw
from ..run.handles import Prompts, Rows
from ..run.iteration import Iteration
from ..run.run import Verb, Work
from .draw_candidates import drawn

SAMPLE = Verb("sample")


def sample(
    it: Iteration,
    prompts: Prompts,
    *,
    n: int,
    top_p: float | None = None,
    label: str = "sample",
    purpose: str | None = None,
) -> Rows[Candidate]:
    """y_i ~ pi(x): commit n candidates a prompt, each under its own seed.

    `top_p` stands in for the policy's own. A second sampling of an iteration needs another `label`;
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
    owed = Work(verb=SAMPLE, params=params, upstream=(prompts.identity,), reads=prompts.each_key)
    return drawn(it, label, "sample", config, owed, work)
