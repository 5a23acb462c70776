# pyright: basic
"""IFEval of a model by transformers alone: no engine, no lake; only the checks are lpfloop's.

    python benchmarks/ifeval_alone.py MODEL PROMPTS.jsonl --dtype float32 --tokens 160
    python benchmarks/ifeval_alone.py MODEL PROMPTS.jsonl --lake LAKE --run RUN --iteration 0

Answers are greedy, one prompt at a time. With --lake, the script uses only the prompts that the
run has answered, and also counts the run's answers.
"""

import argparse
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import torch

from lpfloop.critics.checks import fulfils, fulfils_loosely
from lpfloop.loop.data.prompts import read_prompts
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.stores.records import Prompt


def answers(model: Path, asked: list[Prompt], dtype: str, tokens: int) -> Iterator[str]:
    """Yield the greedy answer to each prompt."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    network: Any = AutoModelForCausalLM.from_pretrained(model, dtype=getattr(torch, dtype)).eval()
    for prompt in asked:
        turns = [{"role": m.role, "content": m.content} for m in prompt.messages]
        inputs = tokenizer.apply_chat_template(
            turns, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        with torch.inference_mode():
            out = network.generate(**inputs, max_new_tokens=tokens, do_sample=False)
        yield tokenizer.decode(out[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)


def met(prompt: Prompt, text: str) -> tuple[bool, bool]:
    """Return whether an answer meets all checks: strictly, loosely."""
    strict = all(fulfils(text, check) for check in prompt.checks)
    return strict, all(fulfils(text, c) or fulfils_loosely(text, c) for c in prompt.checks)


def of_run(lake: Path, run: str, iteration: int) -> dict[str, str]:
    """Return a run's greedy answers by prompt id."""
    with closing(open_run(lake, run)) as opened:
        greedy = opened.scan("candidates", iteration=iteration).collect().filter(kind="greedy")
        return {row["prompt_id"]: row["text"] for row in greedy.to_dicts()}


def main() -> int:
    """Print the accuracies."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("prompts", type=Path)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--tokens", type=int, default=160)
    parser.add_argument("--lake", type=Path)
    parser.add_argument("--run")
    parser.add_argument("--iteration", type=int, default=0)
    args = parser.parse_args()
    asked = [p for p in read_prompts(args.prompts) if p.checks]
    theirs = {} if args.lake is None else of_run(args.lake, args.run, args.iteration)
    if theirs:
        asked = [prompt for prompt in asked if prompt.prompt_id in theirs]
    if not asked:
        sys.exit("no prompt with checks is left; has the run answered this file?")
    own = [*answers(args.model, asked, args.dtype, args.tokens)]
    found = [met(prompt, text) for prompt, text in zip(asked, own, strict=True)]
    print(
        f"{len(asked)} prompts; strict {sum(s for s, _ in found)}, loose {sum(o for _, o in found)}"
    )
    if theirs:
        texts = [theirs[prompt.prompt_id] for prompt in asked]
        other = [met(prompt, text) for prompt, text in zip(asked, texts, strict=True)]
        print(f"the run: strict {sum(s for s, _ in other)}, loose {sum(o for _, o in other)}")
        apart = sum(a != b for a, b in zip(found, other, strict=True))
        same = sum(a.strip() == b.strip() for a, b in zip(own, texts, strict=True))
        print(f"{apart} prompts with another result; {same} of {len(own)} texts are the same")
    return 0


if __name__ == "__main__":
    sys.exit(main())
