"""Answers are cut into passages for a judge of facts."""

from lpfloop.critics.facts.fact_score import LENGTH, LONGEST, passages


def test_short_sentences_share_a_passage():
    assert passages("One. Two!\nThree?") == ["One. Two! Three?"]
    assert passages("  \n ") == []


def test_long_answers_are_cut_between_sentences():
    sentence = "w" * (LENGTH // 2) + "."
    assert passages(f"{sentence} {sentence} {sentence}") == [sentence] * 3


def test_overlong_sentences_are_cut_between_words():
    words = " ".join(["word"] * LONGEST)
    cut = passages(words)
    assert " ".join(cut) == words
    assert max(map(len, cut)) <= LONGEST
    assert passages("x" * (LONGEST + 5)) == ["x" * LONGEST, "x" * 5]
