"""Scripted judges that write the line which a guarded question asks for, ahead of their reply."""

import re

import graders
import judges

from lpfloop.loop.tiny import reviewer as tiny_reviewer
from lpfloop.policies.engines.engine import Request, Sampling
from lpfloop.policies.engines.scripted_engine import Script

MARK = re.compile(r"line (VERDICT-[0-9a-f]{16}) by itself")


def marked(script: Script) -> Script:
    """Return a judge that says the same below the line, where one is asked for."""

    def answer(request: Request, sampling: Sampling) -> str:
        mark, reply = MARK.search(request.messages[-1].content), script(request, sampling)
        return f"{mark[1]}\n{reply}" if mark else reply

    return answer


annotator = marked(judges.greater)
grader = marked(graders.by_figure)
reviewer = marked(tiny_reviewer.reviewer)
