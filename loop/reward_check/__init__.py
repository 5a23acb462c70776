"""How often a reward model prefers what people prefer (UltraFeedback, Section 3.1)."""
