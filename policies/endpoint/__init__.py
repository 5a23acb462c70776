"""OpenAI-compatible endpoints: requests, their pacing and retries, and the meaning of failures."""
