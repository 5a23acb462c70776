"""Pure functions on rows: prompts, splits, rules, pairs, cycles, filter counts."""
