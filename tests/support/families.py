"""Small stand-ins of the families of models that people have on their disks, made in seconds.

Each is a folder as its family publishes it: the real configuration class, a tokenizer of the
family's kind, its special tokens, chat template and end tokens. Its weights are random at first,
then trained on two answers to each of `PROMPTS`, one right and one wrong, so that it ends what it
says and its samples differ.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import family_templates as templates
from family_tokenizers import Spelling, tokenizer_json, write_tokenizer

if TYPE_CHECKING:
    import torch

STEPS, BATCH, RATE = 90, 24, 8e-3
CONTEXT = 1024
WIDTH, HEADS, HEAD = 64, 2, 32
"""vLLM has a kernel on a CPU for heads of 32, none for smaller ones."""
THOUGHT = "<think>\nI add them.\n</think>\n\n"


@dataclass(frozen=True)
class Family:
    """What one family publishes; `ends` are the end tokens of generation_config.json."""

    model_type: str
    spelling: Spelling
    tokenizer_class: str
    special: tuple[str, ...]
    end: str
    template: str | None
    bos: str | None = None
    pad: str | None = None
    ends: tuple[str, ...] = ()
    shape: dict[str, Any] = field(default_factory=dict[str, Any])
    thinks: bool = False


CHATML = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
HEADERS = (
    *("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>"),
    *("<|eom_id|>", "<|eot_id|>"),
)
GLM_BEGINS = ("<|endoftext|>", "[gMASK]", "<sop>")
GLM_ROLES = ("<|system|>", "<|user|>", "<|assistant|>", "<|observation|>")
SENTENCES = ("<unk>", "<s>", "</s>")
GEMMAS = ("<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>")
LLAMA3_SCALING = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 512,
}
FAMILIES = {
    "llama-1-base": Family(
        "llama", "metaspace", "LlamaTokenizer", SENTENCES, "</s>", None, bos="<s>"
    ),
    "llama-2": Family(
        "llama", "metaspace", "LlamaTokenizer", SENTENCES, "</s>", templates.LLAMA2, bos="<s>"
    ),
    "llama-3": Family(
        "llama",
        "bytes",
        "PreTrainedTokenizerFast",
        HEADERS,
        "<|eot_id|>",
        templates.LLAMA3,
        bos="<|begin_of_text|>",
        ends=("<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"),
        shape={"num_key_value_heads": 1, "rope_parameters": LLAMA3_SCALING},
    ),
    "qwen-2.5": Family(
        "qwen2",
        "bytes",
        "Qwen2Tokenizer",
        CHATML,
        "<|im_end|>",
        templates.QWEN2,
        pad="<|endoftext|>",
        ends=("<|im_end|>", "<|endoftext|>"),
        shape={"tie_word_embeddings": True},
    ),
    "qwen-3": Family(
        "qwen3",
        "bytes",
        "Qwen2Tokenizer",
        CHATML,
        "<|im_end|>",
        templates.QWEN3,
        pad="<|endoftext|>",
        ends=("<|im_end|>", "<|endoftext|>"),
        shape={"tie_word_embeddings": True},
        thinks=True,
    ),
    "mistral": Family(
        "mistral",
        "metaspace",
        "LlamaTokenizer",
        SENTENCES,
        "</s>",
        templates.MISTRAL,
        bos="<s>",
        shape={"sliding_window": 64, "num_key_value_heads": 1},
    ),
    "gemma-2": Family(
        "gemma2",
        "spaces",
        "GemmaTokenizer",
        GEMMAS,
        "<end_of_turn>",
        "{{ bos_token }}" + templates.GEMMA,
        bos="<bos>",
        pad="<pad>",
        ends=("<eos>", "<end_of_turn>"),
        shape={"sliding_window": 64, "query_pre_attn_scalar": HEAD},
    ),
    "gemma-3": Family(
        "gemma3_text",
        "spaces",
        "GemmaTokenizer",
        GEMMAS,
        "<end_of_turn>",
        templates.GEMMA3,
        bos="<bos>",
        pad="<pad>",
        ends=("<eos>", "<end_of_turn>"),
        shape={"sliding_window": 64, "query_pre_attn_scalar": HEAD, "num_hidden_layers": 4},
    ),
    "glm-4": Family(
        "glm",
        "bytes",
        "PreTrainedTokenizerFast",
        (*GLM_BEGINS, *GLM_ROLES),
        "<|user|>",
        templates.GLM4,
        pad="<|endoftext|>",
        ends=("<|endoftext|>", "<|user|>", "<|observation|>"),
        shape={"partial_rotary_factor": 0.5},
    ),
    "glm-4-0414": Family(
        "glm4",
        "bytes",
        "PreTrainedTokenizerFast",
        (*GLM_BEGINS, *GLM_ROLES),
        "<|user|>",
        templates.GLM4,
        pad="<|endoftext|>",
        ends=("<|endoftext|>", "<|user|>", "<|observation|>"),
        shape={"partial_rotary_factor": 0.5},
    ),
    "olmo-2": Family(
        "olmo2",
        "bytes",
        "GPT2Tokenizer",
        ("<|endoftext|>", "<|pad|>"),
        "<|endoftext|>",
        templates.OLMO2,
        bos="<|endoftext|>",
        pad="<|pad|>",
    ),
}
NAMES = ("Tom", "Mia", "Sam", "Ana")
THINGS = ("apples", "pens", "coins")


def problems() -> list[dict[str, str]]:
    """Return rows like GSM8K's, whose answers are one line and the number."""
    pairs = [(a, b) for a in (2, 3) for b in (4, 5, 6)]
    return [
        {
            "question": f"{name} has {a} {thing} and gets {b} more. How many has {name} now?",
            "answer": f"{a} + {b} = {a + b}\n#### {a + b}",
        }
        for i, name in enumerate(NAMES)
        for j, thing in enumerate(THINGS)
        for a, b in (pairs[(i + 2 * j) % 6], pairs[(i + 2 * j + 3) % 6])
    ]


def tasks() -> list[dict[str, str]]:
    """Return rows like Alpaca's, with an input."""
    return [
        {
            "instruction": "Add the two numbers.",
            "input": f"{a} and {b}",
            "output": f"{a} + {b} = {a + b}\n#### {a + b}",
            "reference": f"{a} + {b} = {a + b}\n#### {a + b}",
            "task": "math",
        }
        for a, b in ((2, 7), (3, 7), (4, 5), (2, 6))
    ]


PROMPTS = [*problems(), *tasks()]


def write_prompts(path: Path) -> Path:
    """Write the prompts that the stand-ins have learnt to answer, half of them right."""
    path.write_text("".join(json.dumps(row) + "\n" for row in PROMPTS))
    return path


def answers(row: dict[str, str]) -> tuple[str, str]:
    """Return the right answer of a row, and a wrong one."""
    right = row.get("answer") or row["output"]
    head, _, number = right.rpartition(" ")
    sum_, _, _ = head.partition(" = ")
    return right, f"{sum_} = {int(number) + 1}\n#### {int(number) + 1}"


def asked(row: dict[str, str]) -> str:
    """Return what a user of a chat model asks."""
    if "question" in row:
        return row["question"]
    return f"{row['instruction']}\n\n{row['input']}"


def base_text(row: dict[str, str]) -> str:
    """Return what a base model is asked: the Stanford Alpaca prompt."""
    if "question" in row:
        return templates.ALPACA.format(instruction=row["question"])
    return templates.ALPACA_WITH_INPUT.format(**row)


def make_family(name: str, folder: Path, *, seed: int = 0) -> Path:
    """Make the stand-in of a family in an empty or new folder; return the folder."""
    family, tokenizer, config = begin_family(name, folder)
    train(config, folder, examples(family, tokenizer), seed=seed)
    publish_config(family, folder, tokenizer.get_vocab())
    return folder


def begin_family(name: str, folder: Path) -> tuple[Family, Any, Any]:
    """Write all but the weights; return the family, its tokenizer and configuration."""
    from transformers import AutoTokenizer

    family = FAMILIES[name]
    folder.mkdir(parents=True, exist_ok=True)
    texts = [text for row in PROMPTS for text in (base_text(row), *answers(row))]
    frame = ["You are a helpful assistant.", "system\nuser\nassistant\nmodel\n", THOUGHT]
    made = tokenizer_json([*texts, *frame * 9], family.spelling, family.special, family.bos)
    ids = made["model"]["vocab"]
    told: dict[str, Any] = {"chat_template": family.template} if family.template else {}
    write_tokenizer(
        folder,
        made,
        tokenizer_class=family.tokenizer_class,
        bos_token=family.bos,
        eos_token=family.end,
        pad_token=family.pad,
        unk_token="<unk>" if "<unk>" in family.special else None,
        model_max_length=CONTEXT,
        **told,
    )
    config = shape(family, ids)
    # What kind of tokenizer a folder has is also decided by the kind of its model.
    config.save_pretrained(folder)
    return family, AutoTokenizer.from_pretrained(folder), config


def shape(family: Family, ids: dict[str, int]) -> Any:
    """Return the family's configuration; the vocabulary is padded, as published ones are."""
    from transformers import AutoConfig

    plain = {
        "vocab_size": -(-len(ids) // 64) * 64,
        "hidden_size": WIDTH,
        "intermediate_size": 2 * WIDTH,
        "num_hidden_layers": 2,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "head_dim": HEAD,
        "max_position_embeddings": CONTEXT,
        "initializer_range": 0.1,
        "bos_token_id": ids[family.bos] if family.bos else None,
        "eos_token_id": ids[family.end],
        "pad_token_id": ids[family.pad] if family.pad else None,
    }
    return AutoConfig.for_model(family.model_type, **(plain | family.shape))


def train(
    config: Any, folder: Path, rows: "tuple[torch.Tensor, torch.Tensor]", *, seed: int
) -> None:
    """Make the weights: random, then trained on the answers; saved in bfloat16, as published."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(seed)
    ids, labels = rows
    model: Any = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=STEPS)
    model.train()
    for _ in range(STEPS):
        some = torch.randperm(len(ids))[:BATCH]
        loss = model(input_ids=ids[some], labels=labels[some], use_cache=False).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    model.to(torch.bfloat16).save_pretrained(folder)


def examples(family: Family, tokenizer: Any) -> "tuple[torch.Tensor, torch.Tensor]":
    """Return the token ids of the answered prompts, and the labels of what answers them."""
    import torch

    rows = [
        ids
        for row in PROMPTS
        for answer in answers(row)
        for ids in conversations(family, tokenizer, row, answer)
    ]
    width = max(len(ids) for ids, _ in rows)
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    labels = torch.full((len(rows), width), -100)
    for place, (told, start) in enumerate(rows):
        ids[place, : len(told)] = torch.tensor(told)
        labels[place, start : len(told)] = torch.tensor(told[start:])
    return ids, labels


def conversations(
    family: Family, tokenizer: Any, row: dict[str, str], answer: str
) -> list[tuple[list[int], int]]:
    """Return token ids, up to the end token, and where the answer begins.

    A thinking model learns to answer with a thought and, where it is asked to, without.
    """
    end = tokenizer.convert_tokens_to_ids(family.end)
    if family.template is None:
        asks = tokenizer(base_text(row)).input_ids
        whole = tokenizer(base_text(row) + answer).input_ids
        return [([*whole, end], len(asks))]
    turns = [{"role": "user", "content": asked(row)}]
    found = [asked_and_said(tokenizer, turns, THOUGHT * family.thinks + answer, end)]
    if family.thinks:
        found.append(asked_and_said(tokenizer, turns, answer, end, enable_thinking=False))
    return found


def asked_and_said(
    tokenizer: Any, turns: Sequence[dict[str, str]], answer: str, end: int, **told: Any
) -> tuple[list[int], int]:
    prompt = tokenizer.apply_chat_template(
        turns, add_generation_prompt=True, return_dict=False, **told
    )
    both = [*turns, {"role": "assistant", "content": answer}]
    whole = tokenizer.apply_chat_template(both, return_dict=False, **told)
    if end not in whole[len(prompt) :]:  # the next turn's beginning ends a turn of GLM-4
        whole = [*whole, end]
    last = len(whole) - whole[::-1].index(end)
    return whole[:last], len(prompt)


def publish_config(family: Family, folder: Path, ids: dict[str, int]) -> None:
    """Write configurations as the families do: positions and types by their older names."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["torch_dtype"] = config.pop("dtype", "bfloat16")
    positions = config.get("rope_parameters") or {}
    if "rope_theta" in positions:
        del config["rope_parameters"]
        config["rope_theta"] = positions.pop("rope_theta")
        kind = positions.pop("rope_type", "default")
        config["rope_scaling"] = None if kind == "default" else {"rope_type": kind, **positions}
    path.write_text(json.dumps(config, indent=2))
    told = {
        "bos_token_id": config["bos_token_id"],
        "eos_token_id": [ids[token] for token in family.ends or (family.end,)],
        "do_sample": True,
        "temperature": 0.6,
    }
    (folder / "generation_config.json").write_text(json.dumps(told))
