"""The marks by which chat templates divide turns, and the protection against forged marks.

A template writes such a mark at the beginning or end of a turn, and the tokenizer turns it into one
special token. A text that contains a mark could end its own turn and begin another. In-process
engines know their tokenizer's special tokens. The template of a model at an endpoint is unknown,
and a fine-tuned model's name may hide it, so the marks of all families are broken.
"""

import re
from functools import cache
from types import MappingProxyType

WORD_JOINER = "\u2060"
"""Invisible, and not part of any mark: after a mark's first character it breaks the mark."""

_BAR = "\uff5c"
"""The fullwidth bar, in the marks of DeepSeek."""

SHAPES = (r"<\|\w+\|>", rf"<{_BAR}[^\s<>{_BAR}]+{_BAR}>")
"""The marks of most families: `<|im_start|>`, `<|eot_id|>`, `<|user|>`."""

_INSTRUCTION = ("<s>", "</s>", "<unk>", "[INST]", "[/INST]")

FAMILIES = MappingProxyType(
    {
        "chatml": ("<|im_start|>", "<|im_end|>", "<|im_sep|>", "<|endoftext|>"),
        "cohere": (
            *("<BOS_TOKEN>", "<EOS_TOKEN>", "<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
            *("<|SYSTEM_TOKEN|>", "<|USER_TOKEN|>", "<|CHATBOT_TOKEN|>"),
        ),
        "deepseek": tuple(
            f"<{_BAR}{name}{_BAR}>"
            for name in ("begin▁of▁sentence", "end▁of▁sentence", "System", "User", "Assistant")
        ),
        "gemma": (
            *("<bos>", "<eos>", "<pad>", "<unk>", "<start_of_turn>", "<end_of_turn>"),
            *("<|turn>", "<turn|>", "<|channel>", "<channel|>"),
        ),
        "glm": (
            *("[gMASK]", "[MASK]", "[sMASK]", "<sop>", "<eop>", "<|endoftext|>"),
            *("<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"),
        ),
        "gpt-oss": (
            *("<|start|>", "<|message|>", "<|channel|>", "<|constrain|>"),
            *("<|end|>", "<|return|>", "<|call|>"),
        ),
        "llama2": (*_INSTRUCTION, "<<SYS>>", "<</SYS>>"),
        "llama3": (
            *("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>"),
            *("<|eot_id|>", "<|eom_id|>", "<|python_tag|>", "<|header_start|>", "<|header_end|>"),
            *("<|eot|>", "<|eom|>"),
        ),
        "minimax": ("]~!b[", "]~b]", "[e~["),
        "mistral": (
            *_INSTRUCTION,
            *("[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
            *("[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CONTENT]", "[CALL_ID]"),
            *("[ARGS]", "[THINK]", "[/THINK]"),
        ),
        "phi": ("<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|im_sep|>", "<|im_end|>"),
        "qwen": ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|object_ref_start|>"),
    }
)
"""The marks of the common families."""


def broken(text: str) -> str:
    """Return `text` with the marks of all families broken."""
    return _starts().sub(rf"\g<0>{WORD_JOINER}", text)


@cache
def _starts() -> re.Pattern[str]:
    """Find the first character of each mark: of two that overlap, both are found.

    The check of the first character comes before the look-behind for the whole mark, so that
    the search skips from one such character to the next.
    """
    known = set[str]().union(*FAMILIES.values())
    marks = "|".join((*SHAPES, *map(re.escape, sorted(known))))
    firsts = re.escape("".join(sorted({mark[0] for mark in (*SHAPES, *known)})))
    return re.compile(f"[{firsts}](?<=(?=(?:{marks})).)", re.DOTALL)
