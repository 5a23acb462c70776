"""The kinds of journal events about the processes of a run: their start, stages and end."""

START = "start"
"""A process begins to work on the run: pid, host, started, since_boot."""
STAGE = "stage"
"""The process begins a stage that owes something: iteration, stage, done, at."""
END = "end"
"""The process ends without being killed: how, as a sentence."""
