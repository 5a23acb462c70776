"""The tiny world: prompts, demonstrations and the recipe that builds its models."""

import json
import random
import statistics
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

import lpfloop.loop.tiny
from lpfloop.critics.checks import fulfils
from lpfloop.critics.templating import placeholders
from lpfloop.loop.tiny.instructions import Instruction
from lpfloop.loop.tiny.lessons import (
    RETOLD_SHARE,
    TEMPLATES,
    critique_prompt,
    critique_text,
    judged_answer,
    judgement,
    lesson,
)
from lpfloop.loop.tiny.measuring import CRITIQUE_TOKENS, approves, generate
from lpfloop.loop.tiny.nouns import (
    DRY,
    FRIENDLY,
    OPENERS,
    TASKS,
    TinyPrompt,
    opened,
    strip_opener,
)
from lpfloop.loop.tiny.people import (
    LORE,
    MISREMEMBERED,
    TOPICS,
    Biography,
    biographies,
    sentences,
)
from lpfloop.loop.tiny.world import prompts
from lpfloop.stores.records import Split

MODELS = Path(lpfloop.loop.tiny.__file__).parent / "models"
LARGEST = 4_000_000


@pytest.fixture(scope="module")
def train() -> tuple[TinyPrompt, ...]:
    return prompts("train")


@pytest.fixture(scope="module")
def held_out() -> tuple[TinyPrompt, ...]:
    return prompts("held-out")


@pytest.fixture
def rng() -> random.Random:
    return random.Random(1)


def test_sizes_and_thirds(train: tuple[TinyPrompt, ...], held_out: tuple[TinyPrompt, ...]) -> None:
    assert len(train) >= 3_000
    assert len(held_out) >= 600
    for split in (train, held_out):
        for task in TASKS:
            assert sum(p.task == task for p in split) == len(split) // 3


def test_held_out_prompts_share_nothing_with_training_prompts(
    train: tuple[TinyPrompt, ...], held_out: tuple[TinyPrompt, ...]
) -> None:
    assert len({p.text for p in train}) == len(train)
    assert not {p.text for p in train} & {p.text for p in held_out}
    persons = [
        {(p.exercise.first, p.exercise.last) for p in split if isinstance(p.exercise, Biography)}
        for split in (train, held_out)
    ]
    assert not persons[0] & persons[1]
    items = [
        {p.exercise.items for p in split if isinstance(p.exercise, Instruction)}
        for split in (train, held_out)
    ]
    assert not items[0] & items[1]


def test_dev_prompts_share_nothing_with_held_out_ones_nor_items_with_training(
    train: tuple[TinyPrompt, ...], held_out: tuple[TinyPrompt, ...]
) -> None:
    dev = prompts("dev")
    assert not {p.text for p in dev} & {p.text for p in (*train, *held_out)}
    for task in TASKS:
        items = {p.exercise.items for p in dev if p.task == task}
        assert not items & {p.exercise.items for p in held_out if p.task == task}
        if task != "facts":
            assert not items & {p.exercise.items for p in train if p.task == task}


def test_every_story_and_family_has_dev_prompts(held_out: tuple[TinyPrompt, ...]) -> None:
    dev = Counter((p.task, p.kind) for p in prompts("dev"))
    assert dev.total() == len({p.text for p in prompts("dev")}) == 504
    assert Counter(p.task for p in prompts("dev")) == {"math": 220, "facts": 64, "general": 220}
    assert set(dev) == {(p.task, p.kind) for p in held_out}
    assert min(count for (task, _), count in dev.items() if task != "facts") >= 12


@pytest.mark.parametrize(
    ("split", "digest"),
    [
        ("train", "0f2c9542272541ad39d6fe3a19e307a0a1bc914da51b9533693419f24337df5d"),
        ("held-out", "00919b6fc856ff93ca1cd1121774af1f1dc09e18fd672cb420a0019ef615afa1"),
    ],
)
def test_the_prompts_of_earlier_runs_stay_as_they_are(split: Split, digest: str) -> None:
    told = [[p.text, p.reference, p.kind, p.task] for p in prompts(split)]
    assert sha256(json.dumps(told).encode()).hexdigest() == digest


def test_lessons_and_preferences_never_show_a_held_out_prompt(
    held_out: tuple[TinyPrompt, ...], rng: random.Random
) -> None:
    texts = {p.text for p in held_out}
    shown = {item.user for item in (lesson(rng, kind="answer") for _ in range(5_000))}
    shown |= {item.user for item in (judgement(rng) for _ in range(2_000))}
    assert not shown & texts


def test_same_seed_same_world() -> None:
    assert prompts("train", size=60) == prompts("train", size=60)
    assert prompts("train", size=60) != prompts("train", size=60, seed=8)
    first, second = (
        [lesson(rng) for _ in range(50)] for rng in (random.Random(3), random.Random(3))
    )
    assert first == second


def test_a_smaller_set_is_the_beginning_of_a_larger_one() -> None:
    assert prompts("train", size=90)[:30] == prompts("train", size=30)


def cases(
    split: tuple[TinyPrompt, ...], rng: random.Random
) -> Iterator[tuple[TinyPrompt, str, str, str]]:
    for prompt in split:
        exercise = prompt.exercise
        yield (
            prompt,
            opened(exercise, exercise.careful(rng), rng),
            opened(exercise, exercise.careless(rng), rng),
            opened(exercise, exercise.stray(rng), rng),
        )


def test_careful_answers_pass_and_careless_ones_fail(
    train: tuple[TinyPrompt, ...], rng: random.Random
) -> None:
    for prompt, careful, careless, stray in cases(train, rng):
        assert prompt.exercise.judge(careful).good, (prompt.text, careful)
        assert not prompt.exercise.judge(careless).good, (prompt.text, careless)
        assert not prompt.exercise.judge(stray).good, (prompt.text, stray)
        if prompt.checks:
            assert all(fulfils(careful, c) for c in prompt.checks), (prompt.text, careful)
            assert not all(fulfils(careless, c) for c in prompt.checks), (prompt.text, careless)


def test_mended_answers_pass(train: tuple[TinyPrompt, ...], rng: random.Random) -> None:
    for prompt, *answers in cases(train[:600], rng):
        for answer in answers:
            assert prompt.exercise.judge(prompt.exercise.mend(answer)).good, (prompt.text, answer)


def test_care_shows_in_neither_length_nor_style(
    train: tuple[TinyPrompt, ...], rng: random.Random
) -> None:
    for task in TASKS:
        found = list(cases(tuple(p for p in train if p.task == task), rng))
        careful = statistics.fmean(len(strip_opener(good)) for _, good, _, _ in found)
        careless = statistics.fmean(len(strip_opener(bad)) for _, _, bad, _ in found)
        tolerance = 0.1 if task == "general" else 0.02
        assert careless == pytest.approx(careful, rel=tolerance)
        if task != "general":
            shares = [
                statistics.fmean(answer.startswith(FRIENDLY) for answer in answers)
                for answers in ([case[1] for case in found], [case[2] for case in found])
            ]
            assert shares[0] == pytest.approx(shares[1], abs=0.07)


def test_every_answer_but_json_has_an_opener(
    train: tuple[TinyPrompt, ...], rng: random.Random
) -> None:
    assert set(FRIENDLY) | set(DRY) == set(OPENERS)
    for prompt, careful, careless, _ in cases(train[:300], rng):
        assert (
            careful.startswith(OPENERS) == careless.startswith(OPENERS) == (prompt.kind != "json")
        )


def test_references_are_good_answers(train: tuple[TinyPrompt, ...]) -> None:
    for prompt in train:
        if prompt.reference is None:
            assert prompt.task == "general"
            assert prompt.checks
        else:
            # A worked solution names its result as GSM8K's do, an answer in a sentence.
            answer = prompt.reference.replace("####", "The answer is") + "."
            stated = answer if prompt.task == "math" else prompt.reference
            assert prompt.exercise.judge(stated).good
    maths = [p.reference or "" for p in train if p.task == "math"]
    assert all("####" in reference for reference in maths)
    abstracts = [p.reference or "" for p in train if p.task == "facts"]
    assert all(reference.count(".") == 5 for reference in abstracts)


def test_critiques_end_in_the_dictionary_of_their_remarks(
    train: tuple[TinyPrompt, ...], rng: random.Random
) -> None:
    for prompt, *answers in cases(train[:300], rng):
        for answer in answers:
            verdict = prompt.exercise.judge(answer)
            *lines, last = critique_text(verdict).split("\n")
            marks = json.loads(last)
            assert marks == {r.aspect: r.mark for r in verdict.remarks}
            assert len(lines) == len(marks) == (3 if prompt.task == "general" else 1)


def test_memory_is_wrong_of_the_same_names_always_and_by_hearsay_that_is_often_repeated() -> None:
    wrong = {key for key, truth in LORE.truth.items() if LORE.memory[key] != truth}
    assert len(wrong) / len(LORE.truth) == pytest.approx(MISREMEMBERED, abs=0.005)
    assert {topic for _, topic in wrong} == set(TOPICS)
    often = max(LORE.gossip.values())
    assert all(LORE.memory[k] == LORE.hearsay[k] and LORE.gossip[k] == often for k in wrong)


def test_who_judges_from_memory_passes_what_it_believes_and_nothing_else(
    held_out: tuple[TinyPrompt, ...], rng: random.Random
) -> None:
    deceived = 0
    for person in persons(held_out):
        topics = person.topics(rng)
        memory = {t: LORE.memory[person.name(t), t] for t in topics}
        told = "Okay. " + " ".join(person.sentence(t, memory[t]) for t in topics)
        assert person.recall(told).good
        false = [t for t in topics if memory[t] != person.truth(t)]
        assert person.judge(told).good == (not false)
        assert person.recall(" ".join(person.sentence(t) for t in topics)).good == (not false)
        deceived += bool(false)
    assert deceived > len(persons(held_out)) / 3


def test_a_critique_follows_the_abstract_that_it_is_shown_and_else_memory(
    rng: random.Random,
) -> None:
    by_text = {person.text: person for person in biographies()}
    contradicted = 0
    for kind in ("critique with reference", "critique"):
        for _ in range(300):
            item = lesson(rng, task="facts", kind=kind)
            question, answer, *abstract = (
                line.partition("] ")[2] for line in item.user.splitlines()[:-1]
            )
            person = by_text[question]
            believed = (
                set(sentences(abstract[0]))
                if abstract
                else {person.sentence(t, LORE.memory[person.name(t), t]) for t in TOPICS}
            )
            told = set(sentences(strip_opener(answer)))
            assert ('"Factuality": 1}' in item.reply) == (told <= believed)
            contradicted += bool(abstract) and believed != set(sentences(person.reference))
    assert 0.6 < contradicted / (300 * RETOLD_SHARE) < 1.6


def persons(split: tuple[TinyPrompt, ...]) -> list[Biography]:
    return [p.exercise for p in split if isinstance(p.exercise, Biography)]


def test_templates_have_the_placeholders_of_their_use() -> None:
    expected = {
        "critique_general": {"instruction", "answer"},
        "critique_reference": {"instruction", "answer", "reference", "aspect"},
        "critique_single": {"instruction", "answer", "aspect"},
        "reflection": {"instruction", "answer", "feedback"},
    }
    for name, names in expected.items():
        assert placeholders((TEMPLATES / f"{name}.txt").read_text(encoding="utf-8")) == names


def test_shipped_models_are_small_and_described() -> None:
    files = [f for name in ("policy", "reward") for f in (MODELS / name).iterdir()]
    assert sum(f.stat().st_size for f in files) <= LARGEST
    card = (MODELS / "MODEL_CARD.md").read_text(encoding="utf-8")
    for word in ("Seed", "lessons", "critic right", "reward model prefers", "greedy"):
        assert word in card
    config = json.loads((MODELS / "policy" / "config.json").read_text(encoding="utf-8"))
    assert config["architectures"] == ["LlamaForCausalLM"]


def check_models(folder: Path) -> None:
    import torch
    from transformers import (
        AutoModelForCausalLM,
        AutoModelForSequenceClassification,
        AutoTokenizer,
    )

    tokenizer = AutoTokenizer.from_pretrained(folder / "policy")
    policy = AutoModelForCausalLM.from_pretrained(folder / "policy", dtype=torch.float32)
    reward = AutoModelForSequenceClassification.from_pretrained(
        folder / "reward", dtype=torch.float32
    )
    question = [{"role": "user", "content": "Count the words: owl, pen."}]
    whole = [*question, {"role": "assistant", "content": "Sure! There are 2 words."}]
    asked = tokenizer.apply_chat_template(question, add_generation_prompt=True, tokenize=False)
    told = tokenizer.apply_chat_template(whole, tokenize=False)
    assert told.startswith(asked)
    assert told.endswith(tokenizer.eos_token)
    ids = tokenizer(told, return_tensors="pt", return_token_type_ids=False)
    assert torch.isfinite(policy(**ids).logits).all()
    assert reward(**ids).logits.shape == (1, 1)
    assert torch.isfinite(reward(**ids).logits).all()
    digits = tokenizer.tokenize("12+345")
    assert [t for t in digits if t.isdigit()] == list("12345")
    openers = {len(tokenizer.tokenize(text)) for text in OPENERS}
    assert len(openers) == 1, "openers must not differ in length"


@pytest.mark.model
def test_the_shipped_models_load() -> None:
    check_models(MODELS)


@pytest.mark.model
def test_the_shipped_critic_is_right_about_facts_by_the_abstract_alone(
    held_out: tuple[TinyPrompt, ...], rng: random.Random
) -> None:
    answers = [(person, judged_answer(person, rng)) for person in persons(held_out)]
    misjudged = [(p, a) for p, a in answers if p.recall(a).good != p.judge(a).good][:40]
    assert agreement(misjudged, with_reference=True) >= 0.9
    assert agreement(misjudged, with_reference=False) <= 0.2
    retold = [person.retold(rng) for person in persons(held_out)[:40]]
    drafts = [(person, judged_answer(person, rng)) for person in retold]
    assert agreement(drafts, with_reference=True) >= 0.85


def agreement(answers: list[tuple[Biography, str]], *, with_reference: bool) -> float:
    """How often the shipped critic passes just what the abstract supports."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    policy = AutoModelForCausalLM.from_pretrained(MODELS / "policy", dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(MODELS / "policy")
    asked = [critique_prompt(p, "facts", a, with_reference=with_reference) for p, a in answers]
    critiques = generate(policy, tokenizer, asked, max_tokens=CRITIQUE_TOKENS)
    return statistics.fmean(
        approves(critique) == person.judge(answer).good
        for (person, answer), critique in zip(answers, critiques, strict=True)
    )


@pytest.mark.model
def test_a_shortened_build_gives_models_that_load(tmp_path: Path) -> None:
    from lpfloop.loop.tiny.build import build

    report = build(tmp_path, seed=3, scale=0.001)
    assert report.bytes <= LARGEST
    assert 500_000 < report.policy_parameters < 1_500_000
    assert (tmp_path / "MODEL_CARD.md").exists()
    check_models(tmp_path)
