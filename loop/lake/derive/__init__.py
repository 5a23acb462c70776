"""Tables made anew from what a run has stored: other rules, another parser; no model call."""
