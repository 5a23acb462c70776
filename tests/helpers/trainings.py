"""Tiny trainings: models of a few thousand weights, parts of a lake, jobs, fake trainers."""

import hashlib
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lpfloop.configs.engines import EngineConfig, SamplingConfig
from lpfloop.configs.methods import (
    DPOTraining,
    KTOTraining,
    PPOTraining,
    QuarkTraining,
    SFTTraining,
)
from lpfloop.configs.schema import RewardConfig
from lpfloop.policies.engines.canary import CANARY
from lpfloop.policies.trainers import launch, process
from lpfloop.policies.trainers.job import (
    SETTINGS,
    Method,
    OnlineJob,
    TrainingError,
    TrainJob,
    job_identity,
)
from lpfloop.policies.trainers.step_files import REFERENCE_ENDED, REFERENCE_REWARD
from lpfloop.policies.trainers.train_model import TrainResult, train
from lpfloop.policies.trainers.work_folder import parse_row
from lpfloop.policies.workers.identity import scorer_digest
from lpfloop.stores.records import Message, Prompt
from lpfloop.stores.schemas import to_table

TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
TURN = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))


def make_model(
    folder: Path, *, layers: int = 2, width: int = 32, dtype: str = "float32", seed: int = 0
) -> Path:
    """Save a random Llama with a byte-level tokenizer and a chat template."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    special = ["<|pad|>", "<|end|>", "<|user|>", "<|assistant|>"]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {t: i for i, t in enumerate(special + letters)}
    bpe = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe, pad_token="<|pad|>", eos_token="<|end|>", chat_template=TEMPLATE,
        extra_special_tokens=["<|user|>", "<|assistant|>"],
    )  # fmt: skip
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(vocabulary), hidden_size=width, intermediate_size=2 * width,
        num_hidden_layers=layers, num_attention_heads=4, max_position_embeddings=256,
        tie_word_embeddings=True, pad_token_id=0, eos_token_id=1, bos_token_id=None,
    )  # fmt: skip
    LlamaForCausalLM(config).to(getattr(torch, dtype)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    generation = {"temperature": 0.123, "eos_token_id": 1, "do_sample": True}
    (folder / "generation_config.json").write_text(json.dumps(generation))
    return folder


def turn(role: str, content: str) -> list[dict[str, str]]:
    """Return one message in the format of TRL's conversational columns."""
    return [{"role": role, "content": content}]


Scores = tuple[float | None, float | None]


def _write(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table({name: pa.array(column) for name, column in columns.items()}), path)
    return path


def _asked(texts: Iterable[object]) -> pa.Array:
    return pa.array([turn("user", str(text)) for text in texts], TURN)


def _answered(texts: Iterable[str]) -> pa.Array:
    return pa.array([turn("assistant", text) for text in texts], TURN)


def write_pairs(
    path: Path, count: int, *, first: int = 0, scores: Sequence[Scores] | None = None
) -> Path:
    """Write pairs whose chosen answers count up and rejected ones down, with lineage columns."""
    numbers = range(first, first + count)
    chosen, rejected = zip(*(scores or [(None, None)] * count), strict=True)
    return _write(
        path,
        pair_id=[f"pair-{i}" for i in numbers],
        chosen_ratings=pa.array([[1, 1]] * count, pa.list_(pa.int8())),
        chosen_reward=pa.array(chosen, pa.float64()),
        rejected_reward=pa.array(rejected, pa.float64()),
        prompt=_asked(f"Count from {i}." for i in numbers),
        chosen=_answered(f"up {i} {i + 1}" for i in numbers),
        rejected=_answered(f"down {i} {i - 1}" for i in numbers),
        images=["a lineage column that TRL would take for pictures"] * count,
    )


def write_demonstrations(path: Path, count: int) -> Path:
    """Write demonstrations of counting up, with a lineage column."""
    return _write(
        path,
        demonstration_id=[f"demo-{i}" for i in range(count)],
        prompt=_asked(f"Count from {i}." for i in range(count)),
        completion=_answered(f"up {i} {i + 1}" for i in range(count)),
    )


def write_unpaired(path: Path, prompts: int, *, failures: int = 2) -> Path:
    """Write for each prompt a success, which counts up, and failures, which count down."""
    names = [n for n in range(prompts) for _ in range(1 + failures)]
    labels = [place % (1 + failures) == 0 for place in range(len(names))]
    texts = [
        f"up {n} {n + 1}" if good else f"down {n} {place}"
        for place, (n, good) in enumerate(zip(names, labels, strict=True))
    ]
    return _write(
        path,
        unpaired_id=[f"unp-{i}" for i in range(len(names))],
        prompt_id=[f"prompt-{n}" for n in names],
        prompt=_asked(f"Count from {n}." for n in names),
        completion=_answered(texts),
        label=labels,
    )


DPO = DPOTraining(
    learning_rate=1e-3, batch_size=4, micro_batch_size=2, max_length=128, epochs=2.0,
    sft_weight=0.1, chosen_penalty=0.5,
)  # fmt: skip
SFT = SFTTraining(
    learning_rate=3e-3, batch_size=8, micro_batch_size=8, max_length=128, epochs=2.0, warmup_ratio=0
)
KTO = KTOTraining(
    learning_rate=1e-3, batch_size=8, micro_batch_size=4, max_length=128, epochs=2.0, beta=0.5
)


def make_world(folder: Path) -> Path:
    """Make a model with half-precision weights, as shipped, and the parts of a small lake."""
    make_model(folder / "model", dtype="float16")
    write_pairs(folder / "pairs-1.parquet", 48)
    write_pairs(folder / "pairs-2.parquet", 48, first=48)
    write_demonstrations(folder / "demonstrations.parquet", 48)
    return folder


def _job(method: Method, world: Path, output: Path, settings: Any, seed: int, *data: str):
    return TrainJob(
        method=method, model=world / "model", reference=None, settings=settings, seed=seed,
        data=tuple(world / f"{name}.parquet" for name in data), output=output,
    )  # fmt: skip


def dpo_job(world: Path, output: Path) -> TrainJob:
    return _job("dpo", world, output, DPO, 2**40 + 7, "pairs-1", "pairs-2")


def kto_job(world: Path, output: Path) -> TrainJob:
    """Twelve steps on 16 prompts, each with a success and two failures."""
    if not (world / "unpaired.parquet").is_file():
        write_unpaired(world / "unpaired.parquet", 16)
    return _job("kto", world, output, KTO, 5, "unpaired")


def sft_job(world: Path, output: Path) -> TrainJob:
    return _job("sft", world, output, SFT, 1, "demonstrations")


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def starts(work: Path) -> list[int]:
    """Return the steps at which the worker started, one a start."""
    rows = [parse_row(line) for line in (work / "metrics.jsonl").read_text().splitlines()]
    return [row["resumed_from"] for row in rows if row and row["event"] == "start"]


def killed_at(monkeypatch: pytest.MonkeyPatch, job: TrainJob, log: Path, place: str) -> None:
    """Run the job, with a checkpoint after each step, until a failpoint kills it."""
    monkeypatch.setenv("LPFLOOP_FAILPOINT", f"{place}:kill")
    with pytest.raises(TrainingError, match="killed by SIGKILL"):
        train(job, log=log, checkpoint_minutes=0)
    assert not (job.output / "result.json").exists()
    monkeypatch.delenv("LPFLOOP_FAILPOINT")


def same(result: TrainResult, other: TrainResult) -> bool:
    """Return whether two trainings ended with the same bytes and the same reports."""
    names = [p.name for p in sorted(other.output.iterdir())]
    return (
        [p.name for p in sorted(result.output.iterdir())] == names
        and all(sha256(result.output / n) == sha256(other.output / n) for n in names)
        and sha256(result.output.parent / CANARY) == sha256(other.output.parent / CANARY)
        and result.metrics == other.metrics
    )


def plain_job(tmp_path: Path) -> TrainJob:
    """Return a job with a fake model, for decisions that precede loading."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.safetensors").write_bytes(safetensors({}))
    write_pairs(tmp_path / "pairs.parquet", 2)
    return TrainJob(
        method="dpo", model=tmp_path / "model", reference=None, data=(tmp_path / "pairs.parquet",),
        output=tmp_path / "work", settings=DPO, seed=1,
    )  # fmt: skip


def safetensors(shapes: dict[str, list[int]]) -> bytes:
    """Return the bytes of a safetensors file with these tensors in its header, and no data."""
    header = {n: {"dtype": "F32", "shape": s, "data_offsets": [0, 0]} for n, s in shapes.items()}
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    return len(text).to_bytes(8, "little") + text


def stand_in(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Run `code` in place of the launcher."""
    monkeypatch.setattr(launch, "argv", lambda job: [sys.executable, "-c", code])


FILES = {
    "config.json": b"{}", "model.safetensors": b"weights of a model", "optimizer.pt": b"moments",
    "rng_state.pth": b"random", "scheduler.pt": b"schedule",
    "trainer_state.json": b'{"global_step": 4}', "training_args.bin": b"arguments",
}  # fmt: skip
"""Files of a checkpoint of one process."""


def write_checkpoint(parent: Path, step: int, files: dict[str, bytes] = FILES) -> Path:
    """Write an unsealed checkpoint, as a trainer does."""
    folder = parent / f"checkpoint-{step}"
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


RECORD = """
import json, os, pathlib, sys
sys.stdin.close()
work = pathlib.Path({work!r})
tries = work.parent / "tries"
tries.open("a").write("x")
attempt = len(tries.read_text())
def row(**fields):
    (work / "metrics.jsonl").open("a").write(json.dumps(fields) + "\\n")
def fault(kind):
    (work / "fault.json").write_text(json.dumps(dict(kind=kind, message="it said " + kind)))
    sys.exit(1)
def hang():
    import time
    (work.parent / "hanging").touch()
    time.sleep(600)
def finish():
    import hashlib
    sha = lambda p: hashlib.sha256(p.read_bytes()).hexdigest()
    (work / "model").mkdir(exist_ok=True)
    weights, canary = work / "model" / "model.safetensors", work / "canary.json"
    weights.write_bytes(b"trained")
    canary.write_text("[]")
    (work / "result.json").write_text(json.dumps(dict(
        identity=identity, steps=2, max_steps=2, metrics=dict(loss=0.5),
        files={{"model.safetensors": dict(size=7, sha256=sha(weights))}}, canary=sha(canary),
        history=[],
    )))
"""
"""Actions of a fake trainer; `attempt` counts its starts from 1."""

DIE = "os.kill(os.getpid(), 9)"


def scripted(monkeypatch: pytest.MonkeyPatch, job: TrainJob, *attempts: str) -> Path:
    """Give each attempt its code; the last repeats. Return the file that counts the attempts.

    The parent's clock advances only while a fake trainer hangs: a slow machine does not look hung.
    """
    branches = "\n".join(f"if attempt == {i}: {do}" for i, do in enumerate(attempts[:-1], 1))
    last = f"if attempt >= {len(attempts)}: {attempts[-1]}"
    code = f"{RECORD.format(work=str(job.output))}\n{branches}\n{last}"
    hanging = job.output.parent / "hanging"
    seconds = count(1)

    def argv(job: TrainJob) -> list[str]:
        hanging.unlink(missing_ok=True)
        identity = job_identity(job.folder("job.json").read_bytes())
        return [sys.executable, "-c", f"identity = {identity!r}\n{code}"]

    monkeypatch.setattr(launch, "argv", argv)
    monkeypatch.setattr(
        process, "monotonic", lambda: float(next(seconds)) if hanging.exists() else 0.0
    )
    return job.output.parent / "tries"


# online trainings of the tiny world's models


_QUESTIONS = (
    "Tom has 3 apples and buys 4 more. How many apples does he have?",
    "Sort these numbers: 7, 2, 5.",
    "Anna has 12 pears. She eats 2 pears and gives 5 away. How many pears are left?",
    "Name three animals.",
    "What is 12 plus 30?",
    "Write the word cat twice.",
)

PPO = PPOTraining(
    rollouts=8, batch_size=4, micro_batch_size=2, max_steps=4, max_length=256, learning_rate=1e-4,
    warmup_steps=1, kl_coef=0.05,
)  # fmt: skip


def write_online_prompts(path: Path, questions: Sequence[str] = _QUESTIONS) -> Path:
    """Write prompts as online methods read them."""
    names = [f"prompt-{i}" for i in range(len(questions))]
    return _write(path, prompt_id=names, messages=_asked(questions))


def referenced(path: Path) -> Path:
    """Add to each prompt the reward of a reference answer: 0.5, 0, -0.5; every third is cut off."""
    table = pq.read_table(path)
    places = range(table.num_rows)
    table = table.append_column(REFERENCE_REWARD, pa.array([0.5 - i / 2 for i in places]))
    table = table.append_column(REFERENCE_ENDED, pa.array([i % 3 != 0 for i in places]))
    pq.write_table(table, path)
    return path


def ppo_job(
    output: Path,
    *,
    policy: Path,
    reward: Path,
    settings: PPOTraining = PPO,
    engine: str = "transformers",
) -> TrainJob:
    """A training by PPO with the work folder `output/work`."""
    output.mkdir(exist_ok=True)
    return TrainJob(
        method="ppo", model=policy, reference=None, reward=reward, settings=settings, seed=11,
        data=(write_online_prompts(output / "prompts.parquet"),), output=output / "work",
        online=OnlineJob(
            iteration=1, identity="stage", root_seed=5, policy="M0", model="tiny", reward_id="r",
            sampling=SamplingConfig(temperature=1.0, top_p=1.0, max_tokens=24),
            engine=EngineConfig(kind=engine, dtype="float32", max_model_len=256, cpu_threads=1),
            reward=RewardConfig(),
        ),
    )  # fmt: skip


def told_steps(work: Path) -> list[Mapping[str, float]]:
    """Return the reports of a training's steps, without their times."""
    lines = [line for line in (work / "metrics.jsonl").read_text().splitlines() if line]
    rows = [json.loads(line) for line in lines]
    return [
        {k: v for k, v in row["metrics"].items() if not k.startswith("seconds/")}
        for row in rows
        if row["event"] == "step"
    ]


# small jobs of online methods on random models


def make_online_world(folder: Path) -> Path:
    """Make a policy, a reward model with the policy's tokenizer, and prompts."""
    from transformers import AutoModelForSequenceClassification

    policy = make_model(folder / "model")
    make_model(folder / "reward", seed=7)
    scorer = AutoModelForSequenceClassification.from_pretrained(folder / "reward", num_labels=1)
    scorer.save_pretrained(folder / "reward")
    write_online_prompts(folder / "prompts.parquet", [f"Count from {i}." for i in range(12)])
    return policy.parent


def quark_job(world: Path, output: Path, **settings: object) -> TrainJob:
    """Return a job of a few steps of Quark."""
    chosen: dict[str, object] = {
        "rollouts": 8, "batch_size": 4, "micro_batch_size": 2, "max_steps": 4, "max_length": 64,
        "learning_rate": 1e-3, "warmup_steps": 0,
    }  # fmt: skip
    return TrainJob(
        method="quark",
        model=world / "model",
        reference=None,
        data=(world / "prompts.parquet",),
        output=output,
        settings=QuarkTraining.model_validate({**chosen, **settings}),
        seed=11,
        reward=world / "reward",
        online=OnlineJob(
            iteration=1,
            identity="the steps of a test",
            root_seed=3,
            policy="M_0",
            model="model",
            reward_id="r",
            sampling=SamplingConfig(temperature=1.0, max_tokens=8),
            engine=EngineConfig(kind="transformers", dtype="float32"),
            reward=RewardConfig(model="r", batch_size=8, max_length=64),
        ),
    )


def group_job(world: Path, output: Path, method: Method, **settings: object) -> TrainJob:
    """Return a job of a few steps of a method that compares a prompt's answers."""
    chosen: dict[str, object] = {
        "prompts_per_step": 3, "group": 4, "batch_size": 2 if method == "online_dpo" else 6,
        "micro_batch_size": 2, "max_steps": 4, "max_length": 64, "learning_rate": 1e-3,
        "warmup_steps": 0,
    }  # fmt: skip
    made = SETTINGS[method].model_validate(chosen | settings)
    return replace(quark_job(world, output), method=method, settings=made)


def rewarded(job: TrainJob, code: str) -> TrainJob:
    """Reward a job's answers by a user's function: the code of its `score`."""
    folder = job.output.parent
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "mine.py"
    file.write_text(code)
    asked = [
        Prompt(
            prompt_id=f"prompt-{number}",
            task="general",
            split="train",
            messages=(Message(role="user", content=f"Count from {number}."),),
            reference=None,
            checks=(),
            source="here",
        )
        for number in range(12)
    ]
    pq.write_table(to_table(Prompt, asked), folder / "asked.parquet")
    place = f"{file}:score"
    online = job.online
    assert online is not None
    online = replace(online, function=place, reward_id=scorer_digest(place))
    return replace(job, reward=None, online=online, data=(folder / "asked.parquet",))
