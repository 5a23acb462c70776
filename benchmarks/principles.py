"""How good the tiny policy's answers are: at the pool's temperatures, and under principles.

Prints, as Markdown, the hidden human's mean score of answers to held-out prompts: for each model of
the pool `tiny`, and at temperature 1 with a shipped principle in the system message or before the
prompt.

    python benchmarks/principles.py --prompts 300
"""

import argparse
from collections.abc import Iterator
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from tempfile import TemporaryDirectory

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import SamplingConfig
from lpfloop.loop.data.principles import Mix, load_mix
from lpfloop.loop.data.prompts import tiny_prompts
from lpfloop.loop.run.completers import OwnSampling, PoolModel, load_pool
from lpfloop.loop.run.engine_client import engine_sampling
from lpfloop.loop.run.models import locate_model
from lpfloop.loop.stages.complete import Slot, add_principle, principle_of
from lpfloop.loop.tiny.human import score
from lpfloop.policies.engines.engine import Batch, Engine, Request
from lpfloop.policies.workers.engine_factory import open_engine
from lpfloop.stores.keys import derive_seed
from lpfloop.stores.records import Prompt


def models() -> Iterator[PoolModel]:
    """Yield the models of the pool, and the same policy under principles."""
    yield from load_pool("tiny").models
    plain = OwnSampling(temperature=1.0)
    yield PoolModel(name="system-message", principles="system", sampling=plain)
    yield PoolModel(name="before-the-prompt", principles="prompt", sampling=plain)


def scores(
    engine: Engine, model: PoolModel, mix: Mix, prompts: list[Prompt], sampling: SamplingConfig
) -> list[float]:
    """Return the hidden human's scores, for one answer to each prompt."""
    requests = list[Request]()
    for prompt in prompts:
        slot = Slot(model=model.name, number=0)
        principle = None if model.principles == "none" else principle_of(mix, prompt, slot, 0)
        messages = add_principle(prompt.messages, principle, model)
        seed = derive_seed(0, prompt.prompt_id, model.name)
        requests.append(Request(request_id=prompt.prompt_id, messages=messages, seed=seed))
    drawn = engine_sampling(model.sampling_of(sampling))
    batch = Batch(key=model.name, requests=tuple(requests), sampling=drawn)
    (result,) = engine.generate([batch])
    answers = zip(prompts, result.answers, strict=True)
    return [score(prompt.instruction, answer.text) for prompt, answer in answers]


def main() -> None:
    """Answer, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=300, help="number of held-out prompts")
    count = parser.parse_args().prompts
    policy = load_config("tiny", "ultrafeedback-dpo", (), {}).policy
    prompts = [prompt for prompt in tiny_prompts() if prompt.split == "held-out"][:count]
    mix = load_mix("ultrafeedback")
    assert mix is not None
    print("| model | temperature | true score |\n| --- | --- | --- |")
    with TemporaryDirectory() as folder:
        engine = open_engine(locate_model(policy.model), policy.engine, log=Path(folder) / "log")
        for model in models():
            found = scores(engine, model, mix, prompts, policy.sampling)
            mean, error = fmean(found), stdev(found) / sqrt(len(found))
            print(f"| {model.name} | {model.sampling.temperature} | {mean:.2f} ± {error:.2f} |")
        engine.close()


if __name__ == "__main__":
    main()
