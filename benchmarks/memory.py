# pyright: basic
"""Real memory of trainings and engines, compared with the arithmetic of `policies/memory`.

    python benchmarks/memory.py                    # a random Llama of 58 M weights, on a CPU
    python benchmarks/memory.py --only "dpo recomputed"

Each training runs as in a run, in a separate process, on rows of the full `max_length`. On a CPU,
where weights and passes are float32, the peak is the kernel's peak of the process's resident
memory, minus the memory of the same process with an empty model. The size of vLLM's cache comes
from its log.
"""

import argparse
import os
import re
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from lpfloop.configs.engines import EngineConfig, SamplingConfig
from lpfloop.configs.methods import (
    DPOTraining,
    PPOTraining,
    QuarkTraining,
    RewardTraining,
    SFTTraining,
)
from lpfloop.configs.schema import RewardConfig
from lpfloop.configs.training import TrainingConfig
from lpfloop.loop.tiny import world
from lpfloop.policies.engines.engine import Batch, Request, Sampling
from lpfloop.policies.memory.shapes import shape_of
from lpfloop.policies.memory.terms import (
    GIB,
    Inference,
    Term,
    Workload,
    training_terms,
    transformers_terms,
)
from lpfloop.policies.trainers.job import OnlineJob, TrainJob
from lpfloop.policies.trainers.train_model import train
from lpfloop.policies.trainers.training_fit import PLAIN, TrainingFit, fit_of
from lpfloop.policies.workers.engine_factory import open_engine
from lpfloop.stores.records import Message

TINY = Path(world.__file__).parent / "models"
SMALL = {
    "hidden_size": 512,
    "intermediate_size": 1408,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "vocab_size": 32_000,
    "tie_word_embeddings": False,
}
LARGER = SMALL | {
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 16,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
}
"""A larger model, with recomputed activations."""

LENGTH = 512
SAMPLE_S = 0.05
RUNTIME = ("process", "CUDA")


@dataclass(frozen=True)
class Measured:
    """A line of the table, in bytes."""

    name: str
    computed: float
    seen: float

    def row(self) -> str:
        """Return the line."""
        off = self.computed / self.seen - 1
        return f"| {self.name} | {self.computed / GIB:.2f} | {self.seen / GIB:.2f} | {off:+.0%} |"


class Peaks:
    """The peak of each child process, by a word of its command."""

    def __init__(self, *words: str) -> None:
        self.words = words
        self.bytes = dict.fromkeys(words, 0)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        known: dict[int, str | None] = {}
        while not self._over.wait(SAMPLE_S):
            if int(time.monotonic() / SAMPLE_S) % 4 == 0 or not known:
                for child in psutil.Process().children(recursive=True):
                    known.setdefault(child.pid, None)
            for pid in list(known):
                try:
                    self._look(pid, known)
                except (OSError, IndexError):
                    known.pop(pid, None)

    def _look(self, pid: int, known: dict[int, str | None]) -> None:
        if known[pid] is None:
            command = Path(f"/proc/{pid}/cmdline").read_text()
            found = [w for w in self.words if w in command and "launch" not in command]
            known[pid] = found[0] if found else None
        word = known[pid]
        if word is not None:
            status = Path(f"/proc/{pid}/status").read_text()
            size = int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) * 1024
            self.bytes[word] = max(self.bytes[word], size)


def model(folder: Path, sizes: dict[str, Any], kind: str = "policy") -> Path:
    """Make a random model with the tiny tokenizer, saved in float32."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification

    shutil.copytree(TINY / kind, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    maker = AutoModelForCausalLM if kind == "policy" else AutoModelForSequenceClassification
    torch.manual_seed(0)
    maker.from_config(
        AutoConfig.from_pretrained(TINY / kind, **sizes), dtype=torch.float32
    ).save_pretrained(folder)
    return folder


def turns(text: str, role: str) -> list[dict[str, str]]:
    """Return a conversation of one turn."""
    return [{"role": role, "content": text}]


def answers(count: int, tokens: int) -> list[str]:
    """Return different answers of about so many tokens: a digit is one of the tiny tokenizer's."""
    return ["".join(str((i + 3 * k) % 10) for k in range(tokens)) for i in range(count)]


def rows(path: Path, method: str, count: int, length: int) -> Path:
    """Write rows with sequences of the full length."""
    said = answers(2 * count, length - 40)
    prompt = [turns("Say it.", "user")] * count
    table: dict[str, Any] = {"prompt": prompt}
    if method == "sft":
        table["completion"] = [turns(text, "assistant") for text in said[:count]]
    else:
        table["pair_id"] = [str(i) for i in range(count)]
        table["chosen"] = [turns(text, "assistant") for text in said[:count]]
        table["rejected"] = [turns(text, "assistant") for text in said[count:]]
        table |= {"chosen_reward": [1.0] * count, "rejected_reward": [0.0] * count}
    pq.write_table(pa.table(table), path)
    return path


def settings(method: str, *, micro: int, batch: int, length: int) -> Any:
    """Return a training of a few steps."""
    kinds: dict[str, Callable[..., Any]] = {
        "dpo": DPOTraining,
        "sft": SFTTraining,
        "reward": RewardTraining,
    }
    return kinds[method](
        epochs=1, batch_size=batch, micro_batch_size=micro, max_length=length, learning_rate=1e-5
    )


def offline(
    folder: Path,
    method: str,
    sizes: dict[str, Any],
    micro: int,
    batch: int,
    fit: TrainingFit = PLAIN,
) -> tuple[float, list[Term]]:
    """Train two steps; return the peak in bytes, and the arithmetic."""
    policy = model(folder / "policy", sizes)
    data = rows(folder / "rows.parquet", method, 2 * batch, LENGTH)
    job = TrainJob(
        method=method,
        model=policy,
        reference=None,
        data=(data,),
        output=folder / "work",
        settings=settings(method, micro=micro, batch=batch, length=LENGTH),
        seed=0,
        fit=fit,
    )
    with Peaks("train_worker") as peaks:
        train(job, log=folder / "train.log")
    work = Workload(
        method=method,
        rows=micro,
        length=LENGTH,
        accumulation=batch // micro,
        on_gpu=False,
        fit=fit,
    )
    return peaks.bytes["train_worker"], training_terms(shape_of(policy), work)


def online(
    folder: Path,
    method: str,
    sizes: dict[str, Any],
    micro: int,
    answer: int,
    fit: TrainingFit = PLAIN,
) -> tuple[float, list[Term]]:
    """Make two steps of PPO or Quark; return the trainer's peak in bytes, and the arithmetic."""
    policy = model(folder / "policy", sizes)
    reward = model(folder / "reward", sizes, "reward")
    count, prompt_tokens = 4 * micro, LENGTH - answer
    asked = [turns(text, "user") for text in answers(count, prompt_tokens - 40)]
    ids = [str(i) for i in range(count)]
    pq.write_table(pa.table({"prompt_id": ids, "messages": asked}), folder / "prompts.parquet")
    kind = PPOTraining if method == "ppo" else QuarkTraining
    job = TrainJob(
        method=method,
        model=policy,
        reference=None,
        reward=reward,
        data=(folder / "prompts.parquet",),
        output=folder / "work",
        seed=0,
        fit=fit,
        settings=kind(
            rollouts=count,
            batch_size=2 * micro,
            micro_batch_size=micro,
            max_steps=2,
            max_length=LENGTH,
            learning_rate=1e-6,
        ),
        online=OnlineJob(
            iteration=1,
            identity="benchmark",
            root_seed=0,
            policy="policy",
            model=str(policy),
            reward_id="reward",
            sampling=SamplingConfig(temperature=1.0, top_p=1.0, max_tokens=answer),
            engine=EngineConfig(kind="transformers", max_model_len=LENGTH),
            reward=RewardConfig(batch_size=1, max_length=2048),
        ),
    )
    with Peaks("train_worker") as peaks:
        train(job, log=folder / "train.log")
    work = Workload(
        method=method,
        rows=micro,
        length=LENGTH,
        accumulation=2,
        on_gpu=False,
        fit=fit,
        reference=not fit.adapts,
        answer=answer,
    )
    terms = training_terms(shape_of(policy), work, shape_of(reward))
    return peaks.bytes["train_worker"], terms


def drawn(folder: Path, sizes: dict[str, Any], answer: int) -> tuple[float, list[Term]]:
    """Draw a group of answers with the engine of transformers."""
    policy = model(folder / "policy", sizes)
    config = EngineConfig(kind="transformers", max_model_len=LENGTH)
    engine = open_engine(str(policy), config, log=folder / "engine.log")
    asked = answers(64, LENGTH - answer - 40)
    requests = tuple(
        Request(request_id=str(i), messages=(Message(role="user", content=text),), seed=i)
        for i, text in enumerate(asked)
    )
    sampling = Sampling(temperature=1.0, top_p=1.0, max_tokens=answer)
    with Peaks("worker_main") as peaks:
        list(engine.generate([Batch(key="0", requests=requests, sampling=sampling)]))
    engine.close()
    inference = Inference(weight_bytes=4, context=LENGTH, cache_bytes=4)
    terms = transformers_terms(shape_of(policy), inference, rows=64, answer=answer, on_gpu=False)
    return peaks.bytes["worker_main"], terms


def vllm_cache(folder: Path, sizes: dict[str, Any]) -> tuple[float, float]:
    """Return the bytes of a token's keys and values, from vLLM's log and from the arithmetic."""
    policy = model(folder / "policy", sizes)
    log = folder / "engine.log"
    config = EngineConfig(kind="vllm", max_model_len=LENGTH)
    engine = open_engine(str(policy), config, log=log)
    message = Message(role="user", content="Say it.")
    request = Request(request_id="0", messages=(message,), seed=0)
    sampling = Sampling(temperature=1.0, top_p=1.0, max_tokens=4)
    list(engine.generate([Batch(key="0", requests=(request,), sampling=sampling)]))
    engine.close()
    told = re.search(r"KV cache size: ([\d,]+) tokens", log.read_text())
    assert told is not None, log.read_text()[-2000:]
    inference = Inference(weight_bytes=4, context=LENGTH, cache_bytes=4)
    computed_bytes = inference.cache(shape_of(policy), LENGTH) / LENGTH
    return GIB / int(told[1].replace(",", "")), computed_bytes


def computed(terms: list[Term]) -> float:
    """Return the sum of the model's parts."""
    return sum(term.most_bytes for term in terms if term.name not in RUNTIME)


NOTHING = SMALL | {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1}
NOTHING |= {"num_attention_heads": 1, "num_key_value_heads": 1, "vocab_size": 960}

ADAPTED = fit_of(TrainingConfig.model_validate({"lora": {"r": 16}}))
ADAPTED_AGAIN = fit_of(
    TrainingConfig.model_validate({"lora": {"r": 16}, "gradient_checkpointing": "always"})
)
AGAIN = fit_of(TrainingConfig(gradient_checkpointing="always"))

CASES: dict[str, Callable[[Path], tuple[float, list[Term]]]] = {
    "dpo": lambda folder: offline(folder, "dpo", SMALL, 2, 8),
    "dpo, one pass a step": lambda folder: offline(folder, "dpo", SMALL, 2, 2),
    "sft": lambda folder: offline(folder, "sft", SMALL, 4, 8),
    "reward": lambda folder: offline(folder, "reward", SMALL, 2, 4),
    "dpo recomputed": lambda folder: offline(folder, "dpo", LARGER, 2, 4, AGAIN),
    "dpo, gradient_checkpointing=always": lambda folder: offline(folder, "dpo", SMALL, 2, 8, AGAIN),
    "dpo, lora": lambda folder: offline(folder, "dpo", SMALL, 2, 8, ADAPTED),
    "sft, lora": lambda folder: offline(folder, "sft", SMALL, 4, 8, ADAPTED),
    "reward, lora": lambda folder: offline(folder, "reward", SMALL, 2, 4, ADAPTED),
    "dpo recomputed, lora": lambda folder: offline(folder, "dpo", LARGER, 2, 4, ADAPTED_AGAIN),
    "ppo, lora": lambda folder: online(folder, "ppo", SMALL, 2, 128, ADAPTED),
    "quark, lora": lambda folder: online(folder, "quark", SMALL, 2, 128, ADAPTED),
    "ppo": lambda folder: online(folder, "ppo", SMALL, 2, 128),
    "quark": lambda folder: online(folder, "quark", SMALL, 2, 128),
    "transformers engine": lambda folder: drawn(folder, SMALL, 128),
}


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[*CASES, "vllm"])
    wanted = parser.parse_args().only
    # Otherwise the process keeps freed tensors, and its peak depends on earlier steps.
    os.environ["MALLOC_MMAP_THRESHOLD_"] = "65536"
    os.environ["MALLOC_ARENA_MAX"] = "2"
    print("| what | computed, GiB | seen, GiB | off |\n| --- | ---: | ---: | ---: |")
    bare: dict[str, float] = {}
    for name, case in CASES.items():
        if name not in wanted:
            continue
        with tempfile.TemporaryDirectory() as root:
            kind = "engine" if "engine" in name else "trainer"
            if kind not in bare:
                empty = Path(root) / "nothing"
                empty.mkdir()
                nothing = drawn(empty, NOTHING, 8) if kind == "engine" else None
                nothing = nothing or offline(empty, "sft", NOTHING, 1, 1)
                bare[kind] = nothing[0] - computed(nothing[1])
                print(f"| the {kind}'s process itself | | {bare[kind] / GIB:.2f} | |", flush=True)
            folder = Path(root) / "case"
            folder.mkdir()
            seen, terms = case(folder)
            print(Measured(name, computed(terms), seen - bare[kind]).row(), flush=True)
    if "vllm" in wanted:
        with tempfile.TemporaryDirectory() as root:
            seen, mine = vllm_cache(Path(root), SMALL)
            off = mine / seen - 1
            print(f"| vLLM's cache, bytes a token | {mine:.0f} | {seen:.0f} | {off:+.1%} |")


if __name__ == "__main__":
    sys.exit(main())
