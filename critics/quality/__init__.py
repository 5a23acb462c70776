"""The quality of prompts, three-level in three aspects: questions to a judge, and its replies."""
