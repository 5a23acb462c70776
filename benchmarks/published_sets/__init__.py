"""Published data with known answers, sent through the project's own measures and readers."""
