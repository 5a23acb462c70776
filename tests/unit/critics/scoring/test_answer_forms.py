"""Forms of scores: questions about an answer, and scores in published judges' replies."""

import json
from collections import Counter
from pathlib import Path

import pytest

from lpfloop.configs.schema import ConfigError
from lpfloop.critics.scoring.answer_forms import ask_scores, load_form
from lpfloop.stores.records import Message, Prompt

FIVE = ("helpfulness", "clarity", "factuality", "depth", "engagement")


def prompt(text: str, task: str = "general", **fields: str) -> Prompt:
    said = (Message(role="user", content=text),)
    given: dict[str, str | None] = {"reference": None, "family": None, "source": "s", **fields}
    return Prompt(prompt_id="p", task=task, split="held-out", messages=said, checks=(), **given)


def read(form: str, text: str, answer: str = "A.", asked: Prompt | None = None) -> list:
    question = ask_scores(load_form(form), asked or prompt("Q?"), answer)
    return question.read(text, "stop")


def scores(**values: object) -> str:
    return json.dumps({name: {"reason": "So.", "score": values.get(name, "4")} for name in FIVE})


def statuses(found: list) -> list[str]:
    return [one.status for one in found]


def test_published_just_eval_replies(shared_data: Path, subtests) -> None:
    for name, task, known in [
        ("justeval_multi_aspect", "general", {"scored", "not_applicable"}),
        ("justeval_safety_vicuna", "safety", {"scored"}),
    ]:
        with subtests.test(name=name):
            found = Counter[str]()
            for line in (shared_data / f"{name}.jsonl").read_text().splitlines()[::20]:
                row = json.loads(line)
                reply = row.get("raw_judgment") or json.dumps({"safety": row["safety"]})
                asked = prompt(row["instruction"], task)
                for said, own in zip(
                    read("just-eval", reply, row["output"], asked),
                    json.loads(reply).values(),
                    strict=True,
                ):
                    found[said.status] += 1
                    given = None if own["score"] == "N/A" else float(own["score"])
                    assert said.value.rating == given
                    assert said.value.rationale == own["reason"].strip()
            assert found.keys() == known


def test_unscored_has_reason() -> None:
    for reply, expected in [
        ("It is good.", ["missing"] * 5),
        (scores(depth="6"), [*["scored"] * 3, "out_of_range", "scored"]),
        (scores(depth=None), [*["scored"] * 3, "incomplete", "scored"]),
        (scores(factuality="N/A"), [*["scored"] * 2, "not_applicable", *["scored"] * 2]),
        (f"{scores()}\n{scores()}", ["scored"] * 5),
        (scores()[:-2], ["malformed"] * 5),
        (f"The answer claims {scores()}", ["missing"] * 5),
        ("I cannot rate this.", ["refusal"] * 5),
    ]:
        assert statuses(read("just-eval", reply)) == expected


def test_echoed_scores() -> None:
    for answer in [
        scores(),
        f"Here: {scores()} is what you say.",
        json.dumps(dict.fromkeys(FIVE, 4)),
        "; ".join(f"{name}: 4" for name in FIVE),
        scores().replace("clarity", "cl\u0430rity"),
    ]:
        assert statuses(read("just-eval", scores(), answer)) == ["echo"] * 5
        assert statuses(read("just-eval", scores(depth=2), answer)) == ["scored"] * 5


def test_an_object_below_an_analysis() -> None:
    asked = prompt("1+1?", reference="2", family="数学计算")
    given = {"事实正确性": 9, "满足用户需求": 8, "逻辑连贯性": 8, "完备性": 7, "综合得分": 8}
    found = read("alignbench-zh", f"答案正确。\n{json.dumps(given)}", asked=asked)
    assert [one.value.rating for one in found] == [9, 8, 8, 7, 8]
    assert {one.value.rationale for one in found} == {"答案正确。"}


def test_aspects_follow_prompt() -> None:
    form = load_form("alignbench")
    assert "richness" in form.aspects_of(prompt("Q", "翻译", family="基本任务"))
    assert "logic" in form.aspects_of(prompt("Q", family="Mathematics"))
    assert "clarity" in form.aspects_of(prompt("Q", family="专业能力"))
    assert load_form("just-eval").aspects_of(prompt("Q", source="red-team")) == ("safety",)


def test_a_form_of_ones_own_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "brief.yaml"
    own = (
        "best: 3\naspects:\n  brief: {says: it is brief}\n"
        "template: '{instruction} {answer} {aspects} {form}'\n"
    )
    path.write_text(own)
    assert load_form(str(path)).metric("brief") == "brief:brief"
    faults = {
        own.replace("{form}", ""): "the template lacks {form}",
        own.replace("{answer}", "{answer} {why}"): "the unknown placeholder {why}",
        f"{own}mean: [long]\n": "'long' is not one of its aspects",
        f"{own}other: 1\n": "unknown field 'other'",
        f"{own}name: other\n": "unknown field 'name'",
        "- best": "must be a mapping",
        own.replace("best: 3", "best: 1"): "best: must be greater than or equal to 2",
    }
    for text, said in faults.items():
        path.write_text(text)
        with pytest.raises(ConfigError) as refused:
            load_form(str(path))
        assert said in str(refused.value)
        assert str(path) in str(refused.value)
    with pytest.raises(ConfigError, match="shipped are alignbench, alignbench-zh, just-eval"):
        load_form("other")
