"""Plain training loops for the tiny models: from scratch, on the CPU, in minutes.

TRL trains everywhere else; here one pass over endless lessons, batched by length, is faster.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tiny_lessons import Judgement, Lesson, drill, judgement, lesson
from tiny_tokens import chat

if TYPE_CHECKING:
    import torch
    from transformers import (
        LlamaConfig,
        LlamaForCausalLM,
        LlamaForSequenceClassification,
        PreTrainedTokenizerFast,
    )

WIDTH, LAYERS, HEADS, INNER = 128, 4, 4, 344
REWARD_LAYERS = 2
CONTEXT = 2_048
PEAK_RATE = 4e-3
DECAY = 0.05
BATCH, PIECES = 64, 4
# User turns count a little: predicting answers and references in them teaches the world.
USER_WEIGHT = 0.2
# Most of a critique is form; its verdict is in a few tokens.
CRITIQUE_WEIGHT = 2.0
DRILL_SHARE, DRILL_TIME = 0.4, 0.7


@dataclass(frozen=True, slots=True)
class LoopProgress:
    """The progress of a training."""

    stage: str
    step: int
    steps: int
    loss: float


Watch = Callable[[LoopProgress], None]


def shape(tokenizer: "PreTrainedTokenizerFast", **more: Any) -> "LlamaConfig":
    """The shape of the tiny models; `more` adds to it or overrides it."""
    from transformers import LlamaConfig

    settings: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": WIDTH,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "max_position_embeddings": CONTEXT,
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    return LlamaConfig(**(settings | more))


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a batch: token ids, and how much each token counts in the loss."""

    ids: "torch.Tensor"
    weights: "torch.Tensor"


def pieces(lessons: Sequence[Lesson], tokenizer: "PreTrainedTokenizerFast") -> list[Piece]:
    """Turn a batch of lessons into PIECES pieces of similar length, which need little padding."""
    import torch

    prompts = tokenizer([chat(item.user) for item in lessons])["input_ids"]
    whole = tokenizer([chat(item.user, item.reply) for item in lessons])["input_ids"]
    kinds = [(item.kind == "drill", item.kind.startswith("critique")) for item in lessons]
    rows = sorted(zip(whole, map(len, prompts), kinds, strict=True), key=lambda row: len(row[0]))
    size = len(rows) // PIECES
    found: list[Piece] = []
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        longest = len(part[-1][0])
        ids = torch.zeros((len(part), longest), dtype=torch.long)
        weights = torch.zeros((len(part), longest))
        for row, (tokens, prompt, (is_drill, is_critique)) in enumerate(part):
            ids[row, : len(tokens)] = torch.tensor(tokens)
            weights[row, 1:prompt] = 0.0 if is_drill else USER_WEIGHT
            weights[row, prompt : len(tokens)] = CRITIQUE_WEIGHT if is_critique else 1.0
        found.append(Piece(ids, weights))
    return found


def train_policy(
    tokenizer: "PreTrainedTokenizerFast", *, seed: int, steps: int, watch: Watch
) -> "LlamaForCausalLM":
    """Train M_0 from scratch on lessons of all four kinds, mixed with drills at first."""
    import torch
    from torch.nn.functional import cross_entropy
    from transformers import LlamaForCausalLM

    torch.manual_seed(seed)
    model = LlamaForCausalLM(shape(tokenizer))
    model.train()
    optimiser = Optimiser(model, steps)
    rng = random.Random(f"tiny lessons {seed}")
    for step in range(1, steps + 1):
        drilled = DRILL_SHARE * max(0.0, 1 - step / (DRILL_TIME * steps))
        lessons = [drill(rng) if rng.random() < drilled else lesson(rng) for _ in range(BATCH)]
        batch = pieces(lessons, tokenizer)
        total = float(sum(piece.weights.sum() for piece in batch))
        learned = 0.0
        for piece in batch:
            hidden = model.model(input_ids=piece.ids).last_hidden_state
            # Only positions before a token that counts need logits over the vocabulary.
            weights = piece.weights[:, 1:]
            mask = weights > 0
            losses = cross_entropy(
                model.lm_head(hidden[:, :-1][mask]), piece.ids[:, 1:][mask], reduction="none"
            )
            loss = (losses * weights[mask]).sum() / total
            loss.backward()
            learned += loss.item()
        optimiser.step()
        watch(LoopProgress("policy", step, steps, learned))
    return model.eval()


class Optimiser:
    """Muon for the matrices of the layers, AdamW for the rest, both on a one-cycle schedule."""

    def __init__(self, model: "torch.nn.Module", steps: int, rate: float = PEAK_RATE) -> None:
        """Split the parameters of `model` between the two optimizers, for `steps` steps."""
        import torch

        self.parameters = list(model.parameters())
        matrices = [p for n, p in model.named_parameters() if n.endswith("proj.weight")]
        taken = {id(p) for p in matrices}
        others = [p for p in self.parameters if id(p) not in taken]
        self.parts: tuple[torch.optim.Optimizer, ...] = (
            torch.optim.Muon(matrices, lr=rate, weight_decay=DECAY, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(others, lr=rate, betas=(0.9, 0.98), weight_decay=DECAY, fused=True),
        )
        self.schedules = [
            torch.optim.lr_scheduler.OneCycleLR(
                part, max_lr=rate, total_steps=steps + 1, pct_start=0.06, cycle_momentum=False
            )
            for part in self.parts
        ]

    def step(self) -> None:
        """Apply the gradients, then clear them."""
        import torch

        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        for part, schedule in zip(self.parts, self.schedules, strict=True):
            part.step()
            schedule.step()
            part.zero_grad(set_to_none=True)


def train_reward(
    policy: "LlamaForCausalLM",
    tokenizer: "PreTrainedTokenizerFast",
    *,
    seed: int,
    steps: int,
    watch: Watch,
) -> "LlamaForSequenceClassification":
    """Train the reward model on preference pairs, from M_0's embedding and first layers."""
    import torch
    from torch.nn.functional import logsigmoid
    from transformers import LlamaForSequenceClassification

    torch.manual_seed(seed)
    model = LlamaForSequenceClassification(
        shape(tokenizer, num_hidden_layers=REWARD_LAYERS, num_labels=1)
    )
    kept = {
        name: weight
        for name, weight in policy.model.state_dict().items()
        if name in model.model.state_dict()
    }
    model.model.load_state_dict(kept)
    model.train()
    optimiser = Optimiser(model, steps, PEAK_RATE / 3)
    rng = random.Random(f"tiny preferences {seed}")
    for step in range(1, steps + 1):
        scores = score(model, tokenizer, [judgement(rng) for _ in range(BATCH // 2)])
        loss = -logsigmoid(scores[0::2] - scores[1::2]).mean()
        loss.backward()
        optimiser.step()
        watch(LoopProgress("reward", step, steps, loss.item()))
    return model.eval()


def score(
    model: "LlamaForSequenceClassification",
    tokenizer: "PreTrainedTokenizerFast",
    pairs: Sequence[Judgement],
) -> "torch.Tensor":
    """Score the preferred and the other answer of each pair, alternating."""
    texts = [chat(p.user, answer) for p in pairs for answer in (p.preferred, p.other)]
    encoded = tokenizer(texts, padding=True, padding_side="right", return_tensors="pt")
    return model(**encoded).logits[:, 0]
