"""Different models of a pool complete prompts, each under principles drawn for it."""

import json
from collections import Counter
from pathlib import Path

from world import handle_rows, turn, write_prompts

from lpfloop.configs.load import load_config
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.data.principles import Principle
from lpfloop.loop.stages.complete import complete
from lpfloop.stores.records import Candidate, Message

SETTINGS = (
    "policy.engine.kind=scripted",
    "policy.engine.script=scripts:policy",
    "policy.engine.max_model_len=null",
    "critic.engine.kind=scripted",
    "critic.engine.script=scripts:critic",
    "reward.model=none",
    "prompts.held_out_share=0.25",
    "prompts.per_iteration=20",
    "prompts.chunk=4",
    "assessment.reference=null",
)
MODELS = """
- {name: cool, model: policy, sampling: {temperature: 0.5}}
- {name: warm, model: policy, sampling: {temperature: 1.5, max_tokens: 9}}
- {name: other, model: tiny, engine: {kind: scripted, script: "scripts:parrot"}}
- {name: deaf, model: tiny, engine: {kind: scripted, script: "scripts:conditioned_policy"},
   principles: none}
- {name: plain, model: tiny, engine: {kind: scripted}, principles: prompt, size: small}
"""


def pool_file(folder: Path, models: str = MODELS, name: str = "pool.yaml") -> Path:
    path = folder / name
    path.write_text(f"models:\n{models}")
    return path


def job(folder: Path, *overrides: str, pool: Path, name: str = "a", fork=None) -> Job:
    source = f"prompts.source={write_prompts(pool.parent, 40)}"
    settings = (*SETTINGS, source, f"completion.pool={pool}", *overrides)
    config = load_config("tiny", "ultrafeedback-dpo", settings, {})
    return Job(config=config, lake=folder, name=name, fork=fork)


def completions(wanted: Job, n: int = 4) -> list[Candidate]:
    with turn(wanted) as it:
        return handle_rows(it, complete(it, it.prompts(), n=n))


def test_completions_of_different_models(tmp_path, asked):
    found = completions(job(tmp_path, pool=pool_file(tmp_path)))
    by_prompt = Counter(c.prompt_id for c in found)
    assert set(by_prompt.values()) == {4}
    assert len(by_prompt) == 20
    assert len({(c.prompt_id, c.model) for c in found}) == 80
    assert {c.model for c in found} == {"cool", "warm", "other", "deaf", "plain"}
    sent = {request.request_id: request for request, _ in asked}
    for candidate in found:
        messages = sent[candidate.candidate_id].messages
        if candidate.model == "deaf":
            assert candidate.principle is None
            assert [m.role for m in messages] == ["user"]
            continue
        assert candidate.principle is not None
        principle = Principle.read(candidate.principle)
        assert principle.aspect in {"helpfulness", "truthfulness", "honesty", "calibration"}
        if candidate.model == "plain":
            assert [m.role for m in messages] == ["user"]
            assert messages[0].content.startswith(f"{principle.text}\n\n")
        else:
            assert messages[0] == Message(role="system", content=principle.text)


def test_sampling_of_each_model(tmp_path, asked):
    found = completions(job(tmp_path, pool=pool_file(tmp_path)))
    models = {c.candidate_id: c.model for c in found}
    drawn = {models[r.request_id]: (s.temperature, s.top_p, s.max_tokens) for r, s in asked}
    assert drawn["cool"] == (0.5, 1.0, 64)
    assert drawn["warm"] == (1.5, 1.0, 9)
    assert drawn["other"] == (1.0, 1.0, 64)
    warm = next(c for c in found if c.model == "warm")
    assert json.loads(warm.sampling)["temperature"] == 1.5
    assert {c.policy for c in found if c.model == "cool"} == {warm.policy}
    assert warm.policy != next(c.policy for c in found if c.model == "other")


def test_only_changed_model_queried(tmp_path, asked):
    before = completions(job(tmp_path, pool=pool_file(tmp_path)))
    asked.clear()
    changed = MODELS.replace("temperature: 0.5", "temperature: 0.7")
    other = job(tmp_path, pool=pool_file(tmp_path, changed, "new.yaml"), name="b", fork="a")
    after = completions(other)
    kept = {c.candidate_id for c in before} & {c.candidate_id for c in after}
    assert {c.model for c in after if c.candidate_id not in kept} == {"cool"}
    assert {sampling.temperature for _, sampling in asked} == {0.7}
    assert len(asked) == sum(c.model == "cool" for c in after)
