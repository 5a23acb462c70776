"""The canary: engines agree about log-probabilities, and stale weights are caught every time."""

import os
import random
import shutil
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from descent import conversations, descend
from trainings import plain_job

from lpfloop.configs.schema import EngineConfig
from lpfloop.policies.engines.canary import (
    AGREEMENT,
    APART,
    CANARY,
    CanaryRow,
    StaleWeightsError,
    prove,
    read_canary,
    write_canary,
)
from lpfloop.policies.engines.chat import ChatTokenizer
from lpfloop.policies.engines.engine import (
    AnswerLogprob,
    Batch,
    Completion,
    Engine,
    EngineError,
    ReloadableEngine,
    Request,
    Sampling,
)
from lpfloop.policies.engines.scripted_engine import ScriptedEngine
from lpfloop.policies.engines.thinking import ChatForm
from lpfloop.policies.workers.open import open_engine
from lpfloop.policies.workers.places import Berth
from lpfloop.policies.workers.pool import EnginePool
from lpfloop.policies.workers.worker import child_workers
from lpfloop.policies.workers.worker_models import WorkerEngine
from lpfloop.stores.records import Message

KINDS = ("vllm", "transformers")


def row(before: float, after: float, tokens: int = 10) -> CanaryRow:
    return CanaryRow(
        messages=(Message(role="user", content="Who?"),),
        answer="Me.",
        logprob_before=before,
        logprob_after=after,
        tokens=tokens,
    )


@dataclass
class Measuring(ScriptedEngine):
    """An engine that says what it is told to."""

    said: Sequence[float | None]
    tokens: int = 10

    def logprobs(self, conversations):
        assert len(conversations) == len(self.said)
        return [
            None if logprob is None else AnswerLogprob(logprob=logprob, tokens=self.tokens)
            for logprob in self.said
        ]


ROWS = [row(-20.0, -15.0), row(-30.0, -30.1), row(-9.0, -12.0)]


@pytest.mark.parametrize(
    "said",
    [
        [-15.0, -30.1, -12.0],
        [-15.1, -30.3, -11.9],
        [-15.0, None, -12.0],
        [None, None, None],
    ],
)
def test_an_engine_on_the_trained_weights_passes(said: list[float | None]) -> None:
    prove(Measuring(said), ROWS)


@pytest.mark.parametrize(
    "said",
    [
        [-20.0, -30.0, -9.0],  # the parent's weights
        [-15.0, -30.1, -9.0],  # one row of the parent's
        [-40.0, -60.0, -30.0],  # somebody else's
        [float("nan"), -30.1, -12.0],
        [float("-inf"), -30.1, -12.0],
    ],
)
def test_any_other_engine_does_not(said: list[float]) -> None:
    with pytest.raises(StaleWeightsError, match="does not run this checkpoint's weights"):
        prove(Measuring(said), ROWS)


def test_small_steps_are_told_apart_although_both_agree() -> None:
    """Old and new differ by less than engines may be off; which one is nearer decides."""
    step = 10 * (APART + AGREEMENT) / 2
    rows = [row(-20.0, -20.0 + step)]
    prove(Measuring([-20.0 + step]), rows)
    with pytest.raises(StaleWeightsError):
        prove(Measuring([-20.0]), rows)


@pytest.mark.parametrize("step", [1e-3, 1e-2, 0.1])
def test_a_training_that_moved_little_is_told_from_none(step: float) -> None:
    """Each row moved by less than a right engine may be off, but all say the same."""
    rows = [row(-20.0 - i, -20.0 - i + step * (-1) ** i) for i in range(8)]
    assert step / 10 < APART
    exact = 1e-5
    prove(Measuring([r.logprob_after + exact for r in rows]), rows)
    with pytest.raises(StaleWeightsError):
        prove(Measuring([r.logprob_before + exact for r in rows]), rows)


def test_noise_is_no_reason_for_an_alarm() -> None:
    """A right engine in half precision, after trainings that moved less than its noise."""
    numbers = random.Random(0)
    for _ in range(2000):
        rows = [row(-20.0, -20.0 + numbers.gauss(0, 0.05)) for _ in range(8)]
        prove(Measuring([r.logprob_after + numbers.gauss(0, 0.05) for r in rows]), rows)


def test_another_tokenizer_is_caught() -> None:
    with pytest.raises(StaleWeightsError, match="tokenizer"):
        prove(Measuring([-15.0, -30.1, -12.0], tokens=11), ROWS)


def test_an_engine_without_probabilities_and_an_untrained_model_pass() -> None:
    prove(ScriptedEngine(EngineConfig(kind="scripted")), ROWS)
    prove(Measuring([]), [])


def test_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    assert read_canary(tmp_path) == ()
    write_canary(tmp_path, ROWS)
    assert read_canary(tmp_path) == tuple(ROWS)


@pytest.mark.parametrize(
    "content", ["", '{"a": 1}', "[{}]", "[1]", '[{"messages": [[1]]}]', "null"]
)
def test_a_broken_file_is_told(tmp_path: Path, content: str) -> None:
    (tmp_path / CANARY).write_text(content)
    with pytest.raises(EngineError, match="is not valid"):
        read_canary(tmp_path)


# real engines


@pytest.fixture(scope="module")
def template(tiny_policy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny policy's template with other prompts, and an empty thought in finished turns."""
    own = (tiny_policy / "chat_template.jinja").read_text()
    thought = "'<think>\n\n</think>\n\n' if message['role'] == 'assistant' else 'Say: '"
    changed = own.replace("message['content']", f"({thought}) + message['content']")
    assert changed != own
    path = tmp_path_factory.mktemp("template") / "thoughtful.jinja"
    path.write_text(changed)
    return path


@pytest.fixture(scope="module")
def moved(tiny_policy: Path, template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny policy after a real step of gradient descent on the answers, with its canary."""
    folder = tmp_path_factory.mktemp("moved") / "policy"
    write_canary(folder, descend(tiny_policy, folder, template.read_text()))
    return folder


@pytest.fixture(scope="module", params=KINDS)
def pair(
    request,
    moved: Path,
    tiny_policy: Path,
    template: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Engine, Engine]]:
    """Engines of one kind on the trained weights and on their parent's."""
    config = EngineConfig(kind=request.param, cpu_threads=1, template=str(template))
    logs = tmp_path_factory.mktemp("logs")
    engines = [
        open_engine(str(folder), config, log=logs / f"{place}.log")
        for place, folder in enumerate((moved, tiny_policy))
    ]
    yield engines[0], engines[1]
    for engine in engines:
        engine.close()


@pytest.mark.model
def test_engines_say_what_the_model_says(pair: tuple[Engine, Engine], moved: Path) -> None:
    rows = read_canary(moved)
    for engine, wanted in zip(
        pair, ([r.logprob_after for r in rows], [r.logprob_before for r in rows]), strict=True
    ):
        said = engine.logprobs([r.conversation for r in rows])
        assert [s.tokens for s in said if s] == [r.tokens for r in rows]
        for found, expected, canary in zip(said, wanted, rows, strict=True):
            assert found is not None
            assert abs(found.logprob - expected) / canary.tokens < 0.005


@pytest.mark.model
def test_numbers_measured_in_bfloat16_prove_as_well(
    pair: tuple[Engine, Engine],
    moved: Path,
    tiny_policy: Path,
    template: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a trainer measures on a GPU, where a model in float32 may not fit."""
    import torch

    from lpfloop.policies.trainers import trained_model

    monkeypatch.setattr(trained_model, "computing_type", lambda: torch.bfloat16)
    job = replace(plain_job(tmp_path), model=tiny_policy)
    job.output.mkdir()
    chat = ChatTokenizer.of(tiny_policy, template.read_text(), ChatForm())
    parts = [chat.parted(messages) for messages in conversations()]
    told = [trained_model.answer_logprobs(job, folder, parts) for folder in (tiny_policy, moved)]
    rows = [
        replace(canary, logprob_before=old, logprob_after=new)
        for canary, old, new in zip(read_canary(moved), *told, strict=True)
    ]
    exact = [canary.logprob_after for canary in read_canary(moved)]
    assert [canary.logprob_after for canary in rows] != exact
    prove(pair[0], rows)
    with pytest.raises(StaleWeightsError):
        prove(pair[1], rows)


@pytest.mark.model
def test_what_does_not_fit_is_not_measured(pair: tuple[Engine, Engine], moved: Path) -> None:
    first, *_ = conversations()
    endless = (first[0], Message(role="assistant", content="pears and apples " * 3000))
    unsaid, said = pair[0].logprobs([endless, first])
    assert unsaid is None
    assert said is not None


@pytest.mark.model
def test_the_parents_weights_are_caught_and_the_right_ones_pass(
    pair: tuple[Engine, Engine], moved: Path
) -> None:
    rows = read_canary(moved)
    fresh, stale = pair
    prove(fresh, rows)
    with pytest.raises(StaleWeightsError):
        prove(stale, rows)
    # Warm caches prove nothing: draw first, then measure again.
    requests = tuple(
        Request(request_id=str(i), messages=r.messages, seed=i) for i, r in enumerate(rows)
    )
    sampling = Sampling(temperature=1.0, top_p=1.0, max_tokens=8)
    list(fresh.generate([Batch(key="a", requests=requests, sampling=sampling)]))
    prove(fresh, rows)
    with pytest.raises(StaleWeightsError):
        prove(stale, rows)
    prove(stale, ())  # Else it would do nothing for the tests after this one.


@pytest.mark.model
def test_a_reloaded_engine_and_its_successor_give_what_a_fresh_one_gives(
    pair: tuple[EnginePool, EnginePool], moved: Path, tiny_policy: Path
) -> None:
    """To the bit, though the cache of prefixes is full of the old weights' values."""
    fresh, other = pair
    rows = read_canary(moved)
    old = drawn(other)
    assert old != drawn(fresh)
    other.reload(moved)
    prove(other, rows)
    assert drawn(other) == drawn(fresh)
    asked = [row.conversation for row in rows]
    assert other.logprobs(asked) == fresh.logprobs(asked)
    (pid,) = other.pids
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert drawn(other) == drawn(fresh)
    other.reload(tiny_policy)
    assert drawn(other) == old


def drawn(engine: Engine) -> list[Completion]:
    """Draw answers to the canary's questions, several with one prefix."""
    sampling = Sampling(temperature=1.0, top_p=1.0, max_tokens=16, token_ids=True)
    requests = tuple(
        Request(request_id=f"{place}/{seed}", messages=messages[:-1], seed=seed)
        for place, messages in enumerate(conversations())
        for seed in range(6)
    )
    (result,) = engine.generate([Batch(key="a", requests=requests, sampling=sampling)])
    return list(result.completions)


@pytest.mark.model
@pytest.mark.parametrize("injection", ["swapped file", "half old", "noise", "own old canary"])
def test_weights_that_are_not_those_of_the_training_are_caught(
    injection: str, moved: Path, tiny_policy: Path, template: Path, tmp_path: Path
) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "policy"
    shutil.copytree(moved, folder)
    weights, old = folder / "model.safetensors", load_file(tiny_policy / "model.safetensors")
    new = load_file(weights)
    match injection:
        case "swapped file":
            shutil.copyfile(tiny_policy / "model.safetensors", weights)
        case "half old":
            half = dict(list(old.items())[: len(old) // 2])
            save_file({**new, **half}, weights, metadata={"format": "pt"})
        case "noise":
            generator = torch.Generator().manual_seed(0)
            noisy = {
                name: tensor + 0.05 * torch.randn(tensor.shape, generator=generator)
                for name, tensor in new.items()
            }
            save_file(noisy, weights, metadata={"format": "pt"})
        case _:
            rows = read_canary(moved)
            write_canary(
                folder,
                [
                    replace(r, logprob_before=r.logprob_after, logprob_after=r.logprob_before)
                    for r in rows
                ],
            )
    config = EngineConfig(kind="transformers", template=str(template))
    engine = open_engine(str(folder), config, log=tmp_path / "log")
    rows = read_canary(folder)
    with pytest.raises(StaleWeightsError):
        prove(engine, rows)
    with pytest.raises(StaleWeightsError):
        engine.logprobs([row.conversation for row in rows])
    engine.close()


@pytest.mark.model
def test_a_stale_replica_is_found_by_the_canary(
    moved: Path,
    tiny_policy: Path,
    template: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    folders = [str(moved), str(tiny_policy), str(moved)]

    def opener(number: int, _berth: Berth, _model: str, config: EngineConfig) -> WorkerEngine:
        return WorkerEngine(
            "transformers", folders[number], config, start=child_workers(log=tmp_path / "log")
        )

    config = EngineConfig(template=str(template))
    pool = EnginePool(opener, str(moved), config, [Berth(place="local")] * 3)
    rows = read_canary(moved)
    with pytest.raises(StaleWeightsError, match=r"replica 2 of 3: .* does not run"):
        prove(pool, rows)
    assert isinstance(pool, ReloadableEngine)
    pool.reload(moved)
    prove(pool, rows)
    # Each is measured by itself, and all together give the same numbers.
    asked = [row.conversation for row in rows] * 5
    said = pool.logprobs(asked)
    assert said == said[: len(rows)] * 5
    # One that comes later is measured before it is given anything.
    folders.append(str(tiny_policy))
    pool.configure(config.model_copy(update={"replicas": 4}))
    assert len(pool.pids) == 4
    while len(pool.pids) == 4:
        assert pool.logprobs(asked) == said
    assert "replica 4 of 4: the engine does not run this checkpoint's weights" in caplog.text
    pool.close()


@pytest.mark.model
def test_an_answer_ends_with_its_end_token(tiny_policy: Path) -> None:
    """Templates that write a line feed after it, or finished turns in another way, divide alike."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(tiny_policy))
    own = tokenizer.chat_template
    question, answer = conversations()[0]
    for template in (own, own.replace("'<|end|>' }}", "'<|end|>\n' }}"), own + "\n"):
        tokenizer.chat_template = template
        chat = ChatTokenizer(tokenizer, tiny_policy)
        prompt, said = chat.parted((question, answer))
        assert said[-1] in chat.stops
        assert chat.said(said).text == answer.content
        assert tuple(prompt) == chat.prompt((question,))
