"""The world `smol`: SmolLM2-135M-Instruct, and prompts whose demands a function can check."""
