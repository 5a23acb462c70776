"""Conversations a second that a reward model scores, by each way of running it, at mixed lengths.

`by rows` scores each slice alone, as on a CPU; `by tokens` sorts the waiting rows and limits a
pass by its padded tokens, as on a GPU. The model is a random
Llama classifier of the given sizes, with the tiny world's tokenizer. Lengths are log-normal. All
sides must give the same scores, up to 1e-4 (in float32). Loading does not count; the sides take
turns.

    python benchmarks/scoring.py --rounds 3
    python benchmarks/scoring.py --hidden 4096 --layers 32 --rows 4096 --dtype bfloat16  # a GPU
"""

import argparse
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from statistics import median

from lpfloop.configs.schema import RewardConfig
from lpfloop.policies.engines.engine import ScoreBatch, ScoreRequest, ScoreResult
from lpfloop.policies.engines.scorers import RewardScorer
from lpfloop.stores.records import Message

TINY = Path(__file__).parent.parent / "loop" / "tiny" / "models" / "reward"
SLICE = 32
AGREEMENT = 1e-4

Scores = Callable[[Iterable[ScoreBatch]], Iterator[ScoreResult]]


def made(folder: Path, options: argparse.Namespace) -> Path:
    """Save a random classifier of one label, with the tiny world's tokenizer."""
    import torch
    from transformers import LlamaConfig, LlamaForSequenceClassification

    shutil.copytree(TINY, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    torch.manual_seed(0)
    config = LlamaConfig.from_pretrained(
        str(TINY),
        hidden_size=options.hidden,
        intermediate_size=options.hidden * 11 // 4,
        num_hidden_layers=options.layers,
        num_attention_heads=options.hidden // 64,
        num_key_value_heads=options.hidden // 64,
        head_dim=64,
    )
    LlamaForSequenceClassification(config).to(torch.bfloat16).save_pretrained(folder)
    return folder


def conversations(options: argparse.Namespace, seed: int) -> list[ScoreBatch]:
    """Return slices of conversations whose lengths are log-normal around the wanted median."""
    draw = random.Random(seed)
    requests: list[ScoreRequest] = []
    for number in range(options.rows):
        words = round(options.words * draw.lognormvariate(0, options.spread))
        text = " ".join(str(draw.randrange(100)) for _ in range(max(1, words)))
        messages = (
            Message(role="user", content="Sort these numbers."),
            Message(role="assistant", content=text),
        )
        requests.append(ScoreRequest(request_id=str(number), messages=messages))
    return [
        ScoreBatch(key=str(first), requests=tuple(requests[first : first + SLICE]))
        for first in range(0, len(requests), SLICE)
    ]


def measured(score: Scores, asked: list[ScoreBatch]) -> tuple[float, list[float | None]]:
    """Return rows a second, and the scores in order."""
    started = time.perf_counter()
    found = {result.key: result.answers for result in score(asked)}
    seconds = time.perf_counter() - started
    scores = [value for batch in asked for value in found[batch.key]]
    return len(scores) / seconds, scores


def apart(ours: list[float | None], others: list[float | None]) -> float:
    """Return the largest difference; a row that only one side scores counts as infinite."""
    both = zip(ours, others, strict=True)
    return max(
        (0.0 if a is b else abs(a - b) if a is not None and b is not None else float("inf"))
        for a, b in both
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--words", type=float, default=60, help="median length of an answer")
    parser.add_argument("--spread", type=float, default=0.8, help="of the logarithm of lengths")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--dtype", default="float32")
    options = parser.parse_args()
    config = RewardConfig.model_validate({"dtype": options.dtype, "max_length": 1024})
    with tempfile.TemporaryDirectory() as place:
        model = made(Path(place) / "reward", options)
        sides: dict[str, Scores] = {
            "by rows": RewardScorer(model, config, packs=False).score,
            "by tokens": RewardScorer(model, config, packs=True).score,
        }
        asked = conversations(options, 0)
        first = {side: measured(score, asked)[1] for side, score in sides.items()}
        rounds: list[dict[str, float]] = []
        for seed in range(1, options.rounds + 1):
            asked = conversations(options, seed)
            rounds.append({side: measured(score, asked)[0] for side, score in sides.items()})
    print(f"{'side':<12}{'rows/s':>10}{'of by rows':>12}{'apart':>12}")
    for side in sides:
        ratio = median(r[side] / r["by rows"] for r in rounds)
        rate = median(r[side] for r in rounds)
        off = apart(first[side], first["by rows"])
        print(f"{side:<12}{rate:>10.1f}{ratio:>12.2f}{off:>12.1e}")
        if options.dtype == "float32" and off > AGREEMENT:
            raise SystemExit(f"{side} gives other scores")


if __name__ == "__main__":
    main()
