"""One scripted model that can play every judge of the shipped templates, as an endpoint may."""

import json
import re

from graders import by_figure
from judges import FORMS, PAIR
from marking import MARK

from lpfloop.critics.annotators.written_verdicts import reply_of
from lpfloop.critics.quality.prompt_review import ASPECTS
from lpfloop.policies.engines.engine import Request, Sampling
from lpfloop.stores.records import Message

GREEDY = Sampling(temperature=0.0, top_p=1.0, max_tokens=512)
SKILL = re.compile(r"Skill: (.+)")
OUTPUTS = re.compile(r"<output_1>(.*?)</output_1>.*?<output_2>(.*?)</output_2>", re.DOTALL)
CLASS = re.compile(r"^- (\w+):", re.MULTILINE)


def judge(messages: list[dict[str, str]]) -> str:
    """Answer the question in its own form, below the line that it asks for if it does."""
    text = messages[-1]["content"]
    mark = MARK.search(text)
    reply = _reply(text)
    return f"{mark[1]}\n{reply}" if mark else reply


def _reply(text: str) -> str:
    if "<output_1>" in text:
        return _compared(text)
    if "Task 1:" in text:
        return json.dumps(dict.fromkeys(SKILL.findall(text)[:3], len(text) % 2))
    if "Rationale" in text or "Overall score" in text:
        told = (Message(role="user", content=text),)
        return by_figure(Request(request_id="grades", messages=told, seed=0), GREEDY)
    told = [f"Class: {name}\n" for name in CLASS.findall(text)[:1]]
    return "".join([*told, json.dumps(dict.fromkeys(ASPECTS, 1))])


def _compared(text: str) -> str:
    """Prefer the longer output of each pair that is asked about, below the examples."""
    form = next((form for sign, form in FORMS.items() if sign in text), "token")
    asked = text.rpartition("</example>")[2]
    pairs = PAIR.findall(asked) or [("1", *two) for two in OUTPUTS.findall(asked)]
    said = [
        (number, "first" if len(one) > len(other) else "second", "longer")
        for number, one, other in pairs
    ]
    return reply_of(form, said, several="each pair" in text)
