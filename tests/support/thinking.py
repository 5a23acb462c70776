"""The tiny policy as a thinking model: with the chat template of a family, and the tokens it needs.

It has not learned to think: what it says in a test is given, and what becomes of it is looked at.
"""

import json
import shutil
from pathlib import Path

BAR = "\uff5c"
TEMPLATES = ("qwen3", "deepseek_r1_distill", "qwen3_instruct_2507")
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
