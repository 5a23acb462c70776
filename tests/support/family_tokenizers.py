"""Tokenizers in the forms that families of models publish, trained in a moment on a few texts."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

Spelling = Literal["bytes", "metaspace", "spaces"]
"""GPT-2's bytes; SentencePiece as in Llama-2, with a space before each text; as in Gemma."""

VOCABULARY = 480
WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+"
UNKNOWN = "<unk>"


def tokenizer_json(
    texts: Sequence[str], spelling: Spelling, special: Sequence[str], bos: str | None
) -> dict[str, Any]:
    """Return the `tokenizer.json` of a tokenizer whose prompts begin with `bos`, if there is one.

    SentencePiece's vocabularies begin with the special tokens and the 256 bytes, those of bytes end
    with the special tokens.
    """
    learnt = learn(texts, spelling)
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
        **parts(spelling),
        "added_tokens": [
            {"id": ids[token], "content": token, **flags, "special": True} for token in special
        ],
        "post_processor": begins_with(bos, ids),
        "model": learnt["model"] | model(spelling) | {"vocab": ids, "merges": merges},
    }


def learn(texts: Sequence[str], spelling: Spelling) -> dict[str, Any]:
    """Train merges on the texts; return what the library writes."""
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


def model(spelling: Spelling) -> dict[str, Any]:
    if spelling == "bytes":
        return {}
    return {"byte_fallback": True, "fuse_unk": True, "unk_token": UNKNOWN}


def parts(spelling: Spelling) -> dict[str, Any]:
    """Return how texts are prepared and put together, as the families' files say it."""
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


def begins_with(bos: str | None, ids: dict[str, int]) -> dict[str, Any] | None:
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
    """Write a tokenizer's two files; `config` is what `tokenizer_config.json` says beside it."""
    added = {
        str(token["id"]): {name: value for name, value in token.items() if name != "id"}
        for token in made["added_tokens"]
    }
    told = {"added_tokens_decoder": added, "clean_up_tokenization_spaces": False, **config}
    (folder / "tokenizer.json").write_text(json.dumps(made, ensure_ascii=False))
    (folder / "tokenizer_config.json").write_text(json.dumps(told, indent=2))
