"""What the config.json of models that presets name say, as far as memory depends on it."""

from typing import Any

from lpfloop.policies.memory.published_sizes import PUBLISHED

LLAMA_13B: dict[str, Any] = dict(PUBLISHED["Llama-2-13B"])
LLAMA_7B: dict[str, Any] = {
    **LLAMA_13B,
    "hidden_size": 4096,
    "intermediate_size": 11_008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "max_position_embeddings": 2048,
}
GLM_4_9B: dict[str, Any] = {
    "model_type": "glm",
    "hidden_size": 4096,
    "intermediate_size": 13_696,
    "num_hidden_layers": 40,
    "num_attention_heads": 32,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "vocab_size": 151_552,
    "max_position_embeddings": 131_072,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
