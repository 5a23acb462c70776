"""Fields of known models' config.json that determine memory."""

from collections.abc import Mapping
from typing import Any

LLAMA_3: dict[str, Any] = {
    "model_type": "llama", "num_key_value_heads": 8, "vocab_size": 128_256,
    "max_position_embeddings": 131_072, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
PUBLISHED: Mapping[str, Mapping[str, Any]] = {
    "Llama-3.2-1B": LLAMA_3 | {
        "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
        "num_attention_heads": 32, "head_dim": 64, "tie_word_embeddings": True,
    },
    "Llama-3.2-3B": LLAMA_3 | {
        "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 28,
        "num_attention_heads": 24, "head_dim": 128, "tie_word_embeddings": True,
    },
    "Llama-3.1-8B": LLAMA_3 | {
        "hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32,
        "num_attention_heads": 32,
    },
    "Llama-2-13B": {
        "model_type": "llama", "hidden_size": 5120, "intermediate_size": 13_824,
        "num_hidden_layers": 40, "num_attention_heads": 40, "num_key_value_heads": 40,
        "vocab_size": 32_000, "max_position_embeddings": 4096, "tie_word_embeddings": False,
        "torch_dtype": "float16",
    },
    "Qwen2.5-32B": {
        "model_type": "qwen2", "hidden_size": 5120, "intermediate_size": 27_648,
        "num_hidden_layers": 64, "num_attention_heads": 40, "num_key_value_heads": 8,
        "vocab_size": 152_064, "max_position_embeddings": 131_072, "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    },
    "Llama-3.1-70B": LLAMA_3 | {
        "hidden_size": 8192, "intermediate_size": 28_672, "num_hidden_layers": 80,
        "num_attention_heads": 64,
    },
}  # fmt: skip
