# pyright: basic
"""DPO's speed here and with TRL's defaults, on the same rows, and the difference of the losses.

    python benchmarks/training.py --data pairs.jsonl                       # a random Llama, 30 M
    python benchmarks/training.py --data 'RUN/files/pairs/*.parquet' --model tiny
    python benchmarks/training.py --data 'RUN/files/pairs/*.parquet' --model smol

`--data` has `prompt`, `chosen` and `rejected`, as texts in a JSONL file or as turns in Parquet
files. Both sides make the same optimizer steps at the same learning rate, each in a separate
process, in turns; the seconds run from loading the model to the last step, the CPU seconds are
those of all processes, including imports. TRL's side has the defaults of its `DPOConfig`:
activations recomputed, the reference evaluated at each step, bfloat16 if the processor has it.
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lpfloop.configs.methods import DPOTraining
from lpfloop.loop.smol.weights import prepared_folder
from lpfloop.loop.tiny import world
from lpfloop.policies.devices import cpu_type
from lpfloop.policies.trainers.job import TrainJob
from lpfloop.policies.trainers.train_model import train
from lpfloop.policies.trainers.training_fit import TrainingFit

TINY = Path(world.__file__).parent / "models" / "policy"
TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SPECIAL = ["<|pad|>", "<|end|>", "<|user|>", "<|assistant|>"]
LLAMA_30M: dict[str, Any] = {
    "hidden_size": 512,
    "intermediate_size": 1376,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "max_position_embeddings": 2048,
}
TURN = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
RATE, BETA, SEED = 1e-5, 0.1, 7
PARTS = ("load", "train")
TRL_MICRO = 8
FORWARD, BACKWARD = 1, 2
"""Cost of a pass over tokens, in units of a forward pass."""


def parse() -> argparse.Namespace:
    """Return the arguments."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data")
    parser.add_argument("--model", choices=("tiny", "smol", "30m"), default="30m")
    parser.add_argument("--pairs", type=int, default=96)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--micro", type=int, default=4, help="ours; TRL's has its default, 8")
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--epochs", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", action="store_true", help="count tokens, and train nothing")
    parser.add_argument("--trl", help=argparse.SUPPRESS)
    return parser.parse_args()


def read_pairs(place: str, count: int) -> list[dict[str, Any]]:
    """Return the first pairs of a JSONL file, or of Parquet files, as turns."""
    rows: list[dict[str, Any]] = []
    folder = Path(place)
    for path in sorted(folder.parent.glob(folder.name)):
        if path.suffix == ".parquet":
            rows += pq.read_table(path, columns=["prompt", "chosen", "rejected"]).to_pylist()
        else:
            rows += map(json.loads, path.read_text("utf-8").splitlines())
    return [
        {name: turns(name, row[name]) for name in ("prompt", "chosen", "rejected")} for row in rows
    ][:count]


def turns(name: str, said: Any) -> list[dict[str, str]]:
    """Return a column's text or turns as turns."""
    role = "user" if name == "prompt" else "assistant"
    return [{"role": role, "content": said}] if isinstance(said, str) else said


def make_tokenizer(rows: list[dict[str, Any]]) -> Any:
    """Return a tokenizer trained on the rows."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    letters = pre_tokenizers.ByteLevel.alphabet()
    teacher = trainers.BpeTrainer(vocab_size=8192, special_tokens=SPECIAL, initial_alphabet=letters)
    bpe.train_from_iterator(
        (t["content"] for row in rows for s in row.values() for t in s), teacher
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe, pad_token=SPECIAL[0], eos_token=SPECIAL[1], chat_template=TEMPLATE
    )


def make_model(folder: Path, rows: list[dict[str, Any]]) -> Path:
    """Save a random Llama with a tokenizer of the rows."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = make_tokenizer(rows)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
        **LLAMA_30M,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def ours(args: argparse.Namespace, model: Path, data: Path, work: Path) -> dict[str, Any]:
    """Train like the loop; return seconds and losses."""
    settings = DPOTraining(
        beta=BETA, learning_rate=RATE, epochs=args.epochs, batch_size=args.batch,
        micro_batch_size=args.micro, max_length=args.length, warmup_ratio=0, scheduler="constant",
    )  # fmt: skip
    job = TrainJob(
        method="dpo", model=model, reference=None, data=(data,), output=work, settings=settings,
        seed=SEED, fit=TrainingFit(group_by_length=True),
    )  # fmt: skip
    result = train(job, log=work.parent / "train.log")
    told = json.loads((work / "result.json").read_text())["seconds"]
    shutil.rmtree(work)
    return {
        "seconds": sum(told.values()),
        "parts": told,
        "losses": [s["loss"] for s in result.history],
    }


def theirs(args: argparse.Namespace, model: Path, data: Path) -> dict[str, Any]:
    """Train with TRL's defaults in a separate process; return seconds and losses."""
    given = json.dumps({**vars(args), "model": str(model), "data": str(data)})
    env = {**os.environ, "OMP_NUM_THREADS": str(len(os.sched_getaffinity(0)))}
    done = subprocess.run(
        [sys.executable, __file__, "--trl", given], env=env, stdout=subprocess.PIPE, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def train_by_trl(args: dict[str, Any]) -> None:
    """Train with TRL's `DPOTrainer` and its defaults, and print seconds and losses."""
    import torch
    from datasets import Dataset, disable_progress_bars
    from transformers import AutoTokenizer, PrinterCallback
    from trl.trainer.dpo_config import DPOConfig
    from trl.trainer.dpo_trainer import DPOTrainer

    disable_progress_bars()
    started, cuda = time.monotonic(), torch.cuda.is_available()
    micro = args.get("micro_trl", TRL_MICRO)
    with tempfile.TemporaryDirectory() as folder:
        config = DPOConfig(
            output_dir=folder, seed=SEED, data_seed=SEED, beta=BETA, learning_rate=RATE,
            lr_scheduler_type="constant", num_train_epochs=args["epochs"],
            per_device_train_batch_size=micro,
            gradient_accumulation_steps=args["batch"] // micro, max_length=args["length"],
            logging_steps=1, use_cpu=not cuda, bf16=cuda or cpu_type() == "bfloat16",
            save_strategy="no", report_to="none", disable_tqdm=True,
        )  # fmt: skip
        trainer = DPOTrainer(
            model=args["model"],
            args=config,
            train_dataset=Dataset.from_parquet(args["data"], cache_dir=folder),
            processing_class=AutoTokenizer.from_pretrained(args["model"]),
        )
        trainer.remove_callback(PrinterCallback)
        loaded = time.monotonic()
        trainer.train()
    parts = {"load": loaded - started, "train": time.monotonic() - loaded}
    losses = [logs["loss"] for logs in trainer.state.log_history if "loss" in logs]
    print(json.dumps({"seconds": sum(parts.values()), "parts": parts, "losses": losses}))


def main() -> None:
    """Measure in turns; print pairs a second, their ratio, and the difference of the losses."""
    args = parse()
    if args.trl:
        train_by_trl(json.loads(args.trl))
        return
    if args.data is None:
        sys.exit("--data: name a file of pairs")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = read_pairs(args.data, args.pairs)
        data = folder / "pairs.parquet"
        pq.write_table(pa.table({n: pa.array([r[n] for r in rows], TURN) for n in rows[0]}), data)
        if args.count:
            count(args, rows, make_tokenizer(rows))
            return
        match args.model:
            case "tiny":
                model = TINY
            case "smol":
                model = prepared_folder()
            case _:
                model = make_model(folder / "model", rows)
        found: dict[str, list[dict[str, Any]]] = {"TRL": [], "lpfloop": []}
        for _ in range(args.rounds):
            found["TRL"].append(timed(lambda: theirs(args, model, data)))
            found["lpfloop"].append(timed(lambda: ours(args, model, data, folder / "work")))
            report(found, len(rows) * args.epochs)


def count(args: argparse.Namespace, rows: list[dict[str, Any]], tokenizer: Any) -> None:
    """Print the ratio of operations, from each side's tokens including padding."""
    from lpfloop.policies.trainers.base_trainer import LikeLengths

    lengths = [
        min(
            args.length,
            max(
                len(tokenizer.apply_chat_template(r["prompt"] + r[side])["input_ids"])
                for side in ("chosen", "rejected")
            ),
        )
        for r in rows
    ]
    grouped = list(LikeLengths(lengths, step=args.batch, seed=SEED))
    chance = list(LikeLengths(lengths, step=1, seed=SEED))

    def padded(batches: Iterable[Sequence[int]]) -> int:
        return sum(2 * len(batch) * max(lengths[row] for row in batch) for batch in batches)

    reference = FORWARD * padded(batched(range(len(lengths)), args.micro))
    mine, theirs = padded(batched(grouped, args.micro)), padded(batched(chance, TRL_MICRO))
    print(f"{len(rows)} pairs, tokens with padding: {mine:,} here, {theirs:,} in TRL's batches")
    step = FORWARD + BACKWARD
    for what, more in (("activations kept", 0), ("activations computed again", FORWARD)):
        trl = args.epochs * theirs * (step + FORWARD + FORWARD)
        here = args.epochs * mine * (step + more)
        print(f"{what}: {trl / (here + reference):.2f} x")


def batched(rows: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    """Yield rows in their order, so many at a time."""
    yield from (rows[start : start + size] for start in range(0, len(rows), size))


def timed(training: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Train, and add the CPU seconds of the processes, including imports."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    told = training()
    print(told["parts"], file=sys.stderr, flush=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return told | {"cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime}


def report(found: dict[str, list[dict[str, Any]]], pairs: float) -> None:
    """Print the medians."""
    theirs = median(found["TRL"], "seconds")
    losses = found["TRL"][0]["losses"]
    for name, runs in found.items():
        seconds, mine = median(runs, "seconds"), runs[0]["losses"]
        parts = ", ".join(
            f"{n} {statistics.median(r['parts'][n] for r in runs):.1f} s" for n in PARTS
        )
        apart = max(abs(a - b) for a, b in zip(mine, losses, strict=True))
        print(
            f"{name:6} {pairs / seconds:7.2f} pairs/s, {theirs / seconds:5.2f} x TRL's; {parts}, "
            f"CPU {median(runs, 'cpu'):.0f} s; loss {mine[0]:.4f} to {mine[-1]:.4f} in {len(mine)} "
            f"steps, at most {apart:.1e} from TRL's",
            flush=True,
        )


def median(runs: list[dict[str, Any]], name: str) -> float:
    """Return the median of a number over runs."""
    return statistics.median(run[name] for run in runs)


if __name__ == "__main__":
    main()
