"""What is left out before anything is learned from it: prompts by rule, by judgment, by reward."""
