"""Small models in the families' published formats, made in seconds; descriptions of large ones."""

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

import pytest

from lpfloop.policies import devices
from lpfloop.policies.engines.canary import CanaryRow
from lpfloop.policies.engines.chat import ChatTokenizer
from lpfloop.policies.engines.thinking import ChatForm
from lpfloop.stores.records import Message

# chat templates in the forms that families publish, in own words


ALTERNATE = (
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}"
    "{% endif %}"
)
GEMMA = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}"
    "{% endif %}{% for message in messages %}" + ALTERNATE + ""
    "{% set role = 'model' if message['role'] == 'assistant' else message['role'] %}"
    "{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)
GEMMA3 = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}"
    "{% set first = messages[0]['content'] + '\n\n' %}{% set messages = messages[1:] %}"
    "{% else %}{% set first = '' %}{% endif %}{% for message in messages %}" + ALTERNATE + ""
    "{% set role = 'model' if message['role'] == 'assistant' else message['role'] %}"
    "{{ '<start_of_turn>' + role + '\n' + (first if loop.first else '') }}"
    "{{ message['content'] | trim + '<end_of_turn>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)
MISTRAL = (
    "{{ bos_token }}{% for message in messages %}" + ALTERNATE + ""
    "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token }}"
    "{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}"
    "{% endfor %}"
)
LLAMA2 = (
    "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}"
    "{% set system_message = '<<SYS>>\n' + messages[0]['content'] + '\n<</SYS>>\n\n' %}"
    "{% else %}{% set loop_messages = messages %}{% set system_message = '' %}{% endif %}"
    "{% for message in loop_messages %}{% if message['role'] == 'user' %}"
    "{{ (bos_token or '') + '[INST] ' + (system_message if loop.first else '') }}"
    "{{ message['content'] | trim + ' [/INST]' }}"
    "{% else %}{{ ' ' + message['content'] | trim + ' ' + eos_token }}{% endif %}{% endfor %}"
)
LLAMA3 = (
    "{% for message in messages %}{% if loop.first %}{{ bos_token }}{% endif %}"
    "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' }}"
    "{{ message['content'] | trim + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
QWEN2 = (
    "{% if messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}{% endif %}"
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
QWEN3 = (
    "{%- set ns = namespace(last=-1) %}{%- for message in messages %}"
    "{%- if message.role == 'user' %}{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}"
    "{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' }}"
    "{%- set content = message.content %}{%- if message.role == 'assistant' %}"
    "{%- set thought = message.reasoning_content or '' %}"
    "{%- if not thought and '</think>' in content %}"
    "{%- set thought = content.split('</think>')[0].split('<think>')[-1].strip('\\n') %}"
    "{%- set content = content.split('</think>')[-1].lstrip('\\n') %}{%- endif %}"
    "{%- if loop.index0 > ns.last and (loop.last or thought) %}"
    "{{- '<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' }}"
    "{%- set content = content.lstrip('\\n') %}{%- endif %}{%- endif %}"
    "{{- content + '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}"
    "{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}{%- endif %}"
)
GLM4 = (
    "[gMASK]<sop>{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>\n' + message['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
OLMO2 = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}"
    "{{ '<|assistant|>\n' + message['content'] + eos_token }}"
    "{% if not loop.last %}{{ '\n' }}{% endif %}"
    "{% else %}{{ '<|' + message['role'] + '|>\n' + message['content'] + '\n' }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
)
ALPACA = (
    "Below is an instruction that describes a task. Write a response that appropriately "
    "completes the request.\n\n### Instruction:\n{instruction}\n\n### Response:"
)
ALPACA_WITH_INPUT = (
    "Below is an instruction that describes a task, paired with an input that provides further "
    "context. Write a response that appropriately completes the request.\n\n"
    "### Instruction:\n{instruction}\n\n### Input:\n{input}\n\n### Response:"
)


# tokenizers in those forms


Spelling = Literal["bytes", "metaspace", "spaces"]
"""GPT-2's bytes; SentencePiece as in Llama-2, with a space before each text; as in Gemma."""

VOCABULARY = 480
WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+"
UNKNOWN = "<unk>"


def tokenizer_json(
    texts: Sequence[str], spelling: Spelling, special: Sequence[str], bos: str | None
) -> dict[str, Any]:
    """Return the `tokenizer.json` of a tokenizer whose prompts begin with `bos`, if given.

    SentencePiece vocabularies begin with the special tokens and the 256 bytes; byte-level
    vocabularies end with the special tokens.
    """
    learnt = _learn(texts, spelling)
    merges = learnt["model"]["merges"]
    words = sorted(learnt["model"]["vocab"], key=learnt["model"]["vocab"].get)
    if spelling == "bytes":
        made = [*words, *special]
    else:
        letters = [f"<0x{byte:02X}>" for byte in range(256)]
        made = [*special, *letters, *(word for word in words if word not in special)]
    ids = {token: place for place, token in enumerate(made)}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {
        **learnt,
        **_parts(spelling),
        "added_tokens": [
            {"id": ids[token], "content": token, **flags, "special": True} for token in special
        ],
        "post_processor": _begins_with(bos, ids),
        "model": learnt["model"] | _model_settings(spelling) | {"vocab": ids, "merges": merges},
    }


def _learn(texts: Sequence[str], spelling: Spelling) -> dict[str, Any]:
    """Train merges on the texts; return the library's output."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

    bpe = Tokenizer(models.BPE())
    if spelling == "bytes":
        words = pre_tokenizers.Split(Regex(WORDS), behavior="isolated")
        letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        bpe.pre_tokenizer = pre_tokenizers.Sequence([words, letters])
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    else:
        bpe.pre_tokenizer = pre_tokenizers.Metaspace(split=True)
        alphabet = []
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY if alphabet else VOCABULARY - 256,
        initial_alphabet=alphabet,
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    return json.loads(bpe.to_str())


def _model_settings(spelling: Spelling) -> dict[str, Any]:
    if spelling == "bytes":
        return {}
    return {"byte_fallback": True, "fuse_unk": True, "unk_token": UNKNOWN}


def _parts(spelling: Spelling) -> dict[str, Any]:
    """Return how the families' files normalize, split and join texts."""
    if spelling == "bytes":
        plain = {"add_prefix_space": False, "trim_offsets": True, "use_regex": False}
        return {"decoder": {"type": "ByteLevel", **plain}}
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    back = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
    letters = [back, {"type": "ByteFallback"}, {"type": "Fuse"}]
    if spelling == "spaces":
        return {
            "normalizer": spaces,
            "pre_tokenizer": {
                "type": "Split",
                "pattern": {"String": " "},
                "behavior": "MergedWithPrevious",
                "invert": False,
            },
            "decoder": {"type": "Sequence", "decoders": letters},
        }
    begin = {"type": "Prepend", "prepend": "▁"}
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    return {
        "normalizer": {"type": "Sequence", "normalizers": [begin, spaces]},
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": [*letters, strip]},
    }


def _begins_with(bos: str | None, ids: dict[str, int]) -> dict[str, Any] | None:
    if bos is None:
        return None
    first = {"SpecialToken": {"id": bos, "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [first, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [first, *({"Sequence": {"id": name, "type_id": 0}} for name in "AB")],
        "special_tokens": {bos: {"id": bos, "ids": [ids[bos]], "tokens": [bos]}},
    }


def write_tokenizer(folder: Path, made: dict[str, Any], **config: Any) -> None:
    """Write a tokenizer's two files; `config` adds to `tokenizer_config.json`."""
    added = {
        str(token["id"]): {name: value for name, value in token.items() if name != "id"}
        for token in made["added_tokens"]
    }
    told = {"added_tokens_decoder": added, "clean_up_tokenization_spaces": False, **config}
    (folder / "tokenizer.json").write_text(json.dumps(made, ensure_ascii=False))
    (folder / "tokenizer_config.json").write_text(json.dumps(told, indent=2))


# the families


if TYPE_CHECKING:
    import torch

STEPS, BATCH, RATE = 90, 24, 8e-3
_CONTEXT = 1024
WIDTH, HEADS, HEAD = 64, 2, 32
"""vLLM has a kernel on a CPU for heads of 32, none for smaller ones."""
THOUGHT = "<think>\nI add them.\n</think>\n\n"


@dataclass(frozen=True)
class Family:
    """Files that one family publishes; `ends` are the end tokens of generation_config.json."""

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
    "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 512,
}  # fmt: skip
GLM = {
    "special": (*GLM_BEGINS, *GLM_ROLES), "end": "<|user|>", "template": GLM4,
    "pad": "<|endoftext|>", "ends": ("<|endoftext|>", "<|user|>", "<|observation|>"),
    "shape": {"partial_rotary_factor": 0.5},
}  # fmt: skip
QWEN = {
    "special": CHATML, "end": "<|im_end|>", "pad": "<|endoftext|>",
    "ends": ("<|im_end|>", "<|endoftext|>"), "shape": {"tie_word_embeddings": True},
}  # fmt: skip
SPACES = {
    "special": GEMMAS, "end": "<end_of_turn>", "bos": "<bos>", "pad": "<pad>",
    "ends": ("<eos>", "<end_of_turn>"),
}  # fmt: skip
SENTENCE = {"special": SENTENCES, "end": "</s>", "bos": "<s>"}
WINDOW = {"sliding_window": 64, "query_pre_attn_scalar": HEAD}
FAMILIES = {
    "llama-1-base": Family("llama", "metaspace", "LlamaTokenizer", template=None, **SENTENCE),
    "llama-2": Family("llama", "metaspace", "LlamaTokenizer", template=LLAMA2, **SENTENCE),
    "llama-3": Family(
        *("llama", "bytes", "PreTrainedTokenizerFast", HEADERS, "<|eot_id|>", LLAMA3),
        bos="<|begin_of_text|>",
        ends=("<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"),
        shape={"num_key_value_heads": 1, "rope_parameters": LLAMA3_SCALING},
    ),
    "qwen-2.5": Family("qwen2", "bytes", "Qwen2Tokenizer", template=QWEN2, **QWEN),
    "qwen-3": Family("qwen3", "bytes", "Qwen2Tokenizer", template=QWEN3, thinks=True, **QWEN),
    "mistral": Family(
        *("mistral", "metaspace", "LlamaTokenizer"),
        template=MISTRAL,
        shape={"sliding_window": 64, "num_key_value_heads": 1},
        **SENTENCE,
    ),
    "gemma-2": Family(
        *("gemma2", "spaces", "GemmaTokenizer"),
        template="{{ bos_token }}" + GEMMA,
        shape=WINDOW,
        **SPACES,
    ),
    "gemma-3": Family(
        *("gemma3_text", "spaces", "GemmaTokenizer"),
        template=GEMMA3,
        shape=WINDOW | {"num_hidden_layers": 4},
        **SPACES,
    ),
    "glm-4": Family("glm", "bytes", "PreTrainedTokenizerFast", **GLM),
    "glm-4-0414": Family("glm4", "bytes", "PreTrainedTokenizerFast", **GLM),
    "olmo-2": Family(
        *("olmo2", "bytes", "GPT2Tokenizer", ("<|endoftext|>", "<|pad|>"), "<|endoftext|>", OLMO2),
        bos="<|endoftext|>",
        pad="<|pad|>",
    ),
}
_NAMES = ("Tom", "Mia", "Sam", "Ana")
THINGS = ("apples", "pens", "coins")


def problems() -> list[dict[str, str]]:
    """Return rows like GSM8K's, whose answers are one line and the number."""
    pairs = [(a, b) for a in (2, 3) for b in (4, 5, 6)]
    return [
        {
            "question": f"{name} has {a} {thing} and gets {b} more. How many has {name} now?",
            "answer": f"{a} + {b} = {a + b}\n#### {a + b}",
        }
        for i, name in enumerate(_NAMES)
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


FAMILY_PROMPTS = [*problems(), *tasks()]


def write_family_prompts(path: Path) -> Path:
    """Write the prompts that the small models were trained to answer, half of them right."""
    path.write_text("".join(json.dumps(row) + "\n" for row in FAMILY_PROMPTS))
    return path


def family_answers(row: dict[str, str]) -> tuple[str, str]:
    """Return the right answer of a row, and a wrong one."""
    right = row.get("answer") or row["output"]
    head, _, number = right.rpartition(" ")
    sum_, _, _ = head.partition(" = ")
    return right, f"{sum_} = {int(number) + 1}\n#### {int(number) + 1}"


def _chat_text(row: dict[str, str]) -> str:
    """Return a user's question to a chat model."""
    if "question" in row:
        return row["question"]
    return f"{row['instruction']}\n\n{row['input']}"


def base_text(row: dict[str, str]) -> str:
    """Return a base model's prompt: the Stanford Alpaca format."""
    if "question" in row:
        return ALPACA.format(instruction=row["question"])
    return ALPACA_WITH_INPUT.format(**row)


def make_family(name: str, folder: Path, *, seed: int = 0) -> Path:
    """Make the family's small model in an empty or new folder; return the folder."""
    family, tokenizer, config = begin_family(name, folder)
    _train(config, folder, _examples(family, tokenizer), seed=seed)
    _publish_config(family, folder, tokenizer.get_vocab())
    return folder


def begin_family(name: str, folder: Path) -> tuple[Family, Any, Any]:
    """Write everything except the weights; return the family, its tokenizer and configuration."""
    from transformers import AutoTokenizer

    family = FAMILIES[name]
    folder.mkdir(parents=True, exist_ok=True)
    texts = [text for row in FAMILY_PROMPTS for text in (base_text(row), *family_answers(row))]
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
        model_max_length=_CONTEXT,
        **told,
    )
    config = shape(family, ids)
    # The kind of a folder's model also decides the kind of its tokenizer.
    config.save_pretrained(folder)
    return family, AutoTokenizer.from_pretrained(folder), config


def shape(family: Family, ids: dict[str, int]) -> Any:
    """Return the family's configuration; the vocabulary is padded, like published ones."""
    from transformers import AutoConfig

    plain = {
        "vocab_size": -(-len(ids) // 64) * 64, "hidden_size": WIDTH, "intermediate_size": 2 * WIDTH,
        "num_hidden_layers": 2, "num_attention_heads": HEADS, "num_key_value_heads": HEADS,
        "head_dim": HEAD, "max_position_embeddings": _CONTEXT, "initializer_range": 0.1,
        "bos_token_id": ids[family.bos] if family.bos else None, "eos_token_id": ids[family.end],
        "pad_token_id": ids[family.pad] if family.pad else None,
    }  # fmt: skip
    return AutoConfig.for_model(family.model_type, **(plain | family.shape))


def _train(
    config: Any, folder: Path, rows: "tuple[torch.Tensor, torch.Tensor]", *, seed: int
) -> None:
    """Make the weights: random, then trained on the answers; saved in bfloat16."""
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


def _examples(family: Family, tokenizer: Any) -> "tuple[torch.Tensor, torch.Tensor]":
    """Return the token ids of the answered prompts, with the answers' labels."""
    import torch

    rows = [
        ids
        for row in FAMILY_PROMPTS
        for answer in family_answers(row)
        for ids in _conversations(family, tokenizer, row, answer)
    ]
    width = max(len(ids) for ids, _ in rows)
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    labels = torch.full((len(rows), width), -100)
    for place, (told, start) in enumerate(rows):
        ids[place, : len(told)] = torch.tensor(told)
        labels[place, start : len(told)] = torch.tensor(told[start:])
    return ids, labels


def _conversations(
    family: Family, tokenizer: Any, row: dict[str, str], answer: str
) -> list[tuple[list[int], int]]:
    """Return token ids up to the end token, and the index of the answer's first token.

    A thinking model learns to answer with a thought and, if the prompt disables thinking, without.
    """
    end = tokenizer.convert_tokens_to_ids(family.end)
    if family.template is None:
        asks = tokenizer(base_text(row)).input_ids
        whole = tokenizer(base_text(row) + answer).input_ids
        return [([*whole, end], len(asks))]
    turns = [{"role": "user", "content": _chat_text(row)}]
    found = [_asked_and_said(tokenizer, turns, THOUGHT * family.thinks + answer, end)]
    if family.thinks:
        found.append(_asked_and_said(tokenizer, turns, answer, end, enable_thinking=False))
    return found


def _asked_and_said(
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


def _publish_config(family: Family, folder: Path, ids: dict[str, int]) -> None:
    """Write configurations like the families': positions and types under their older names."""
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


# the tiny policy with the chat template of a thinking model: it has not learned to think


BAR = "\uff5c"
ENDS = {
    "qwen3": "<|im_end|>",
    "qwen3_instruct_2507": "<|im_end|>",
    "deepseek_r1_distill": f"<{BAR}end▁of▁sentence{BAR}>",
}
MARKS = (
    "<|im_start|>",
    *(f"<{BAR}{name}{BAR}>" for name in ("User", "Assistant", "begin▁of▁sentence")),
)
TAGS = ("<think>", "</think>")


def published_template(family: str) -> str:
    """Return the chat template of a family as TRL ships it."""
    import trl

    return (Path(trl.__file__).parent / "chat_templates" / f"{family}.jinja").read_text()


def thinking_model(source: Path, folder: Path, family: str) -> Path:
    """Write the model in `source` with a family's template, marks, tags and end token."""
    from tokenizers import AddedToken
    from transformers import AutoModelForCausalLM, AutoTokenizer

    shutil.copytree(source, folder)
    tokenizer = AutoTokenizer.from_pretrained(source)
    special = [*MARKS, *ENDS.values()]
    tokenizer.add_tokens([AddedToken(name, special=True) for name in dict.fromkeys(special)])
    tokenizer.add_tokens([AddedToken(name, special=False) for name in TAGS])
    tokenizer.eos_token = ENDS[family]
    tokenizer.chat_template = published_template(family)
    tokenizer.save_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(source)
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    end = tokenizer.convert_tokens_to_ids(ENDS[family])
    model.config.eos_token_id = model.generation_config.eos_token_id = end
    model.save_pretrained(folder)
    for name in ("config.json", "generation_config.json"):
        path = folder / name
        path.write_text(json.dumps(json.loads(path.read_text()) | {"eos_token_id": end}))
    return folder


# the tiny policy after a step of gradient descent, and the statistics of a trainer


_QUESTIONS = {
    "Who are you?": "I am Loopy.",
    "Tom has 3 apples and buys 4 more. How many apples does he have?": "3 + 4 = 7. The answer "
    "is 7.",
    "Sort these numbers: 7, 2, 5.": "2, 5, 7",
    "Name a fruit.": "",
}


def conversations() -> list[tuple[Message, ...]]:
    """Return the questions with their answers."""
    return [
        (Message(role="user", content=question), Message(role="assistant", content=answer))
        for question, answer in _QUESTIONS.items()
    ]


def descend(source: Path, folder: Path, template: str | None = None) -> list[CanaryRow]:
    """Copy a model to a folder, with weights one step closer to the answers; measure both."""
    import torch
    from transformers import AutoModelForCausalLM

    shutil.copytree(source, folder)
    model = AutoModelForCausalLM.from_pretrained(str(source), dtype=torch.float32)
    chat = ChatTokenizer.of(source, template, ChatForm())
    parts = [chat.split_answer(messages) for messages in conversations()]

    def measured() -> list[torch.Tensor]:
        sums = []
        for prompt, answer in parts:
            logits = model(torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1]
            told = logits.log_softmax(-1).gather(1, torch.tensor(answer)[:, None])
            sums.append(told.sum())
        return sums

    before = measured()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    sum(before).neg().backward()
    optimizer.step()
    after = measured()
    model.save_pretrained(folder)
    return [
        CanaryRow(
            messages=messages[:-1],
            answer=messages[-1].content,
            logprob_before=old.item(),
            logprob_after=new.item(),
            tokens=len(answer),
        )
        for messages, (_, answer), old, new in zip(
            conversations(), parts, before, after, strict=True
        )
    ]


# what the config.json of large models say, which memory depends on


LLAMA_13B: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 5120, "intermediate_size": 13_824,
    "num_hidden_layers": 40, "num_attention_heads": 40, "num_key_value_heads": 40,
    "vocab_size": 32_000, "max_position_embeddings": 4096, "tie_word_embeddings": False,
    "torch_dtype": "float16",
}  # fmt: skip
LLAMA_7B: dict[str, Any] = {
    **LLAMA_13B, "hidden_size": 4096, "intermediate_size": 11_008, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 32, "max_position_embeddings": 2048,
}  # fmt: skip
GLM_4_9B: dict[str, Any] = {
    "model_type": "glm", "hidden_size": 4096, "intermediate_size": 13_696, "num_hidden_layers": 40,
    "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128, "vocab_size": 151_552,
    "max_position_embeddings": 131_072, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip


# GPUs that are not there


UUID = "GPU-{number}f00-cafe"


def show_gpus(monkeypatch: pytest.MonkeyPatch, folder: Path, *memory: str) -> None:
    """Simulate GPUs of this memory, such as `24 GiB`, in nvidia-smi, and vLLM's build for them."""
    rows = "\n".join(f"{UUID.format(number=n)}, {m}, Toy" for n, m in enumerate(memory))
    program = folder / "driver" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{rows}\nEND\n")
    program.chmod(0o755)
    if not isinstance(os.environ, dict):  # the fixture `environ` has not replaced it
        monkeypatch.setattr(os, "environ", dict(os.environ))
    os.environ["PATH"] = f"{program.parent}:{os.environ['PATH']}"
    os.environ.pop(devices.VISIBLE, None)
    monkeypatch.setattr(devices, "installed_version", lambda name: "1" if name == "vllm" else None)
    answered = SimpleNamespace(stdout=rows)
    double = SimpleNamespace(
        run=lambda *_, **__: answered, SubprocessError=subprocess.SubprocessError
    )
    monkeypatch.setattr(devices, "subprocess", double)  # the program is for child processes
