"""OpenAI-compatible endpoints: what is sent, when, and what a failure means."""
