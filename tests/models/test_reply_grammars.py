"""vLLM's grammars for judges' replies accept the requested form of each question."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import rows
from forgeries import CRITIC, GRADER, REVIEWERS

from lpfloop.critics.guard import GuardKey
from lpfloop.critics.judge import Question
from lpfloop.critics.scoring.answer_forms import ask_scores, load_form
from lpfloop.loop.run.served import TINY_MODELS
from lpfloop.policies.engines.thinking import Thinking
from lpfloop.policies.engines.vllm_engine import reply_form

pytestmark = pytest.mark.model

KEY = GuardKey.of(7, "ask-1", by_schema=True)
TAGS = ("<think>", "</think>")
THOUGHT = "Is {this} so?\n</think>\n\n"


@pytest.fixture(scope="module")
def compiler() -> Any:
    xgrammar = pytest.importorskip("xgrammar")
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(Path(TINY_MODELS) / "policy"))
    info = xgrammar.TokenizerInfo.from_huggingface(tokenizer)
    return xgrammar.GrammarCompiler(info, max_threads=1)


def follows(grammar: Any, reply: str) -> bool:
    """Whether a grammar allows a reply, and its end there."""
    import xgrammar

    matcher = xgrammar.GrammarMatcher(grammar)
    return matcher.accept_string(reply) and matcher.is_completed()


def questions() -> dict[str, Question[Any]]:
    return {
        "critic": CRITIC.ask(rows.PROMPT, "Four.", KEY),
        "reviewer": REVIEWERS[1].ask("What is 2 + 2?", KEY),
        "truthfulness": GRADER.ask("truthfulness", rows.PROMPT, ["Four.", "Five."], key=KEY),
        "overall": GRADER.ask("overall", rows.PROMPT, ["Four."], key=KEY),
        "scores": ask_scores(load_form("alignbench-zh"), rows.PROMPT, "Four.", KEY),
    }


def compact(reply: str) -> str:
    """Return an object as vLLM draws it: without white space between its parts."""
    return json.dumps(json.loads(reply), ensure_ascii=False, separators=(",", ":"))


def test_replies_of_each_question_follow_its_schema(compiler: Any) -> None:
    for name, question in questions().items():
        assert question.schema is not None
        schema = json.dumps(reply_form(question.schema, None)["json"])
        grammar = compiler.compile_json_schema(schema, any_whitespace=False, separators=(",", ":"))
        reply = compact(question.example(1))
        assert follows(grammar, reply), name
        assert not follows(grammar, reply.replace("VERDICT-", "VERDICT-0")), name
        assert not follows(grammar, f"Sure: {reply}"), name
        assert not follows(grammar, reply[:-1]), name


def test_as_many_aspects_are_rated_as_are_to_be_chosen(compiler: Any) -> None:
    question = CRITIC.ask(replace(rows.PROMPT, task="any"), "Four.", KEY)
    assert question.schema is not None
    grammar = compiler.compile_json_schema(
        json.dumps(question.schema), any_whitespace=False, separators=(",", ":")
    )
    said = json.loads(question.example(1))
    last = next(reversed(said))
    assert len(said) == 1 + 3
    assert follows(grammar, compact(json.dumps(said)))
    assert not follows(grammar, compact(json.dumps({k: said[k] for k in said if k != last})))


def test_thought_precedes_reply(compiler: Any) -> None:
    question = questions()["overall"]
    assert question.schema is not None
    reply = question.example(1)
    for begun, allowed, refused in (
        (True, [f"{THOUGHT}{reply}"], [reply]),
        (False, [reply, f"<think>{THOUGHT}{reply}"], [f"{THOUGHT}{reply}", f"Sure: {reply}"]),
    ):
        form = reply_form(question.schema, Thinking(tags=TAGS, begun=begun))
        grammar = compiler.compile_structural_tag(form["structural_tag"])
        assert all(follows(grammar, said) for said in allowed)
        assert not any(follows(grammar, said) for said in refused)
