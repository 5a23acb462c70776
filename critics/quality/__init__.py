"""The quality of prompts, three-level in three aspects: asking a judge, reading what it says."""
