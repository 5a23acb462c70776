"""The kinds of a journal's events that tell who worked on a run, at what, and how it ended."""

START = "start"
"""A process begins to work on the run: pid, host, started, since_boot."""
STAGE = "stage"
"""The process begins a stage that owes something: iteration, stage, done, at."""
END = "end"
"""The process ends by itself: how, as a sentence."""
