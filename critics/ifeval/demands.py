"""IFEval's demands on an answer: its length and parts, its words and letters, and it as a whole.

Lines are searched one by one, so that the time is linear in the answer's length. Keywords are taken
literally; the authors' code reads them as regular expressions, in which `c++` is not a word, and
some patterns never finish. The types of the parameters are those that a check accepts.
"""

import json
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Annotated, Literal, NoReturn

from pydantic import Field, StringConstraints

from .languages import language_of
from .sentences import sentences_of

BULLET = re.compile(r"^[^\S\n]*(?:\*[^*].*|-.*)$", re.MULTILINE)
DIVIDER = re.compile(r"\s?\*\*\*\s?")
HIGHLIGHTS = (re.compile(r"\*([^\n*]*)\*"), re.compile(r"\*\*([^\n*]*)\*\*"))
POSTSCRIPTS = {"P.P.S": r"p\.\s?p\.\s?s", "P.S.": r"p\.\s?s\."}
ANSWERS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
FENCES = ("```json", "```Json", "```JSON", "```")
APART = re.compile(
    r"[\s\u00ab\u00bb\u2018\u2019\u201c-\u201e`\"\[\](){}<>;@#$%&?!*\u2012-\u2015]|--|\.{2,}|[:,](?!\d)|''|(?<!\w)'(?=[a-z]{2})",
    re.IGNORECASE,
)
"""Separators of tokens, and tokens without letters (as nltk's `word_tokenize`)."""
CLITIC = re.compile(r"(?<=[^'])('[smd]?|'ll|'re|'ve|n't)$", re.IGNORECASE)
TWO_IN_ONE = re.compile(
    r"\b(?:can(?=not\b)|(?:gim|lem)(?=me\b)|gon(?=na\b)|got(?=ta\b))", re.IGNORECASE
)
ENGLISH = "en"

Relation = Literal["less than", "at least"]
Number = Annotated[int, Field(ge=0)]
Place = Annotated[int, Field(ge=1)]
Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Words = Annotated[list[Annotated[str, Field(pattern=r"\S")]], Field(min_length=1)]
Letter = Annotated[
    str, StringConstraints(strip_whitespace=True, to_lower=True, min_length=1, max_length=1)
]
# fmt: off
Language = Literal[
    "af", "ar", "bg", "bn", "ca", "cs", "cy", "da", "de", "el", "en", "es", "et", "fa", "fi", "fr",
    "gu", "he", "hi", "hr", "hu", "id", "it", "ja", "kn", "ko", "lt", "lv", "mk", "ml", "mr", "ne",
    "nl", "no", "pa", "pl", "pt", "ro", "ru", "sk", "sl", "so", "sq", "sv", "sw", "ta", "te", "th",
    "tl", "tr", "uk", "ur", "vi", "zh-cn", "zh-tw",
]
"""The languages that langdetect recognises."""
# fmt: on


def compare_count(found: Iterable[object], relation: Relation, bound: int) -> bool:
    """Whether there are at least `bound` finds, or fewer; the search ends at `bound`."""
    reached = sum(1 for _ in islice(found, bound)) == bound
    return reached == (relation == "at least")


def has_sentences(answer: str, *, num_sentences: Number, relation: Relation) -> bool:
    """Whether the answer has the given number of sentences (see `sentences`)."""
    return compare_count(sentences_of(answer), relation, num_sentences)


def has_words(answer: str, *, num_words: Number, relation: Relation) -> bool:
    """Whether the answer has the given number of words: runs of letters, digits and underscores."""
    return compare_count(re.finditer(r"\w+", answer), relation, num_words)


def has_paragraphs(answer: str, *, num_paragraphs: Number) -> bool:
    """Whether the divider *** makes exactly `num_paragraphs` paragraphs, none of them empty."""
    parts = [bool(part.strip()) for part in DIVIDER.split(answer)]
    return all(parts[1:-1]) and sum(parts) == num_paragraphs


def has_first_word(
    answer: str, *, num_paragraphs: Number, nth_paragraph: Place, first_word: Text
) -> bool:
    """Whether empty lines make exactly `num_paragraphs` paragraphs, and one begins with a word."""
    paragraphs = answer.split("\n\n")
    if sum(1 for paragraph in paragraphs if paragraph.strip()) != num_paragraphs:
        return False
    words = paragraphs[nth_paragraph - 1].split(maxsplit=1)
    return bool(words) and _bare(words[0]) == first_word.lower()


def _bare(word: str) -> str:
    """Return a word up to its first punctuation mark, in small letters."""
    return re.split(r"[.,?!'\"]", word.lstrip("'").lstrip('"'), maxsplit=1)[0].lower()


def has_placeholders(answer: str, *, num_placeholders: Number) -> bool:
    """Whether there are at least `num_placeholders` [placeholders] within lines."""
    return compare_count(_placeholders(answer), "at least", num_placeholders)


def _placeholders(text: str) -> Iterator[int]:
    for line in text.split("\n"):
        end = -1
        while (start := line.find("[", end + 1)) >= 0 and (end := line.find("]", start)) >= 0:
            yield start


def has_postscript(answer: str, *, postscript_marker: Text) -> bool:
    """Whether there is a postscript; space within P.S. and P.P.S does not matter."""
    pattern = POSTSCRIPTS.get(postscript_marker) or re.escape(postscript_marker.lower())
    return re.search(pattern, answer.lower()) is not None


def has_bullets(answer: str, *, num_bullets: Number) -> bool:
    """Whether exactly `num_bullets` lines begin with * or -; lines with ** do not count."""
    return sum(1 for _ in BULLET.finditer(answer)) == num_bullets


def is_one_of_the_answers(answer: str) -> bool:
    """Whether the answer has "My answer is yes.", "… no." or "… maybe.".

    Other text around it is allowed, as in the authors' code; their prompts do not forbid it.
    """
    return any(option in answer for option in ANSWERS)


def has_highlights(answer: str, *, num_highlights: Number) -> bool:
    """Whether at least `num_highlights` parts within lines are *highlighted* or **highlighted**."""
    found = (text for kind in HIGHLIGHTS for text in kind.findall(answer) if text.strip())
    return compare_count(found, "at least", num_highlights)


def has_sections(answer: str, *, section_spliter: Text, num_sections: Number) -> bool:
    """Whether there are at least `num_sections` sections, each begun by the word and a number."""
    heads = re.finditer(rf"{re.escape(section_spliter)}\s?\d+", answer)
    return compare_count(heads, "at least", num_sections)


def is_json(answer: str) -> bool:
    """Whether the whole answer is JSON, in a code fence or not; NaN and infinity are not."""
    text = answer.strip()
    for fence in FENCES:
        text = text.removeprefix(fence)
    try:
        json.loads(text.removesuffix("```").strip(), parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        return False
    return True


def refuse_constant(name: str) -> NoReturn:
    """Refuse NaN and infinity, which Python's reader of JSON accepts."""
    raise ValueError(f"{name} is not JSON")


def has_title(answer: str) -> bool:
    """Whether a line has a <<title>>."""
    return any(map(_is_titled, answer.split("\n")))


def _is_titled(line: str) -> bool:
    start, end = line.find("<<"), line.rfind(">>")
    return 0 <= start < end and bool(line[start:end].lstrip("<").rstrip(">").strip())


def has_keywords(answer: str, *, keywords: Words) -> bool:
    """Whether each keyword is in the answer, also within words."""
    return all(re.search(re.escape(word), answer, re.IGNORECASE) for word in keywords)


def has_keyword_often(answer: str, *, keyword: Text, frequency: Number, relation: Relation) -> bool:
    """Whether the keyword is there so often, also within words."""
    found = re.finditer(re.escape(keyword), answer, re.IGNORECASE)
    return compare_count(found, relation, frequency)


def avoids_words(answer: str, *, forbidden_words: Words) -> bool:
    """Whether none of the words is in the answer as a whole word."""
    return not any(
        re.search(rf"(?<!\w){re.escape(word)}(?!\w)", answer, re.IGNORECASE)
        for word in forbidden_words
    )


def has_letter_often(
    answer: str, *, letter: Letter, let_frequency: Number, let_relation: Relation
) -> bool:
    """Whether a letter, large or small, or another character is there so often."""
    return compare_count(range(answer.lower().count(letter)), let_relation, let_frequency)


def has_capital_words(
    answer: str, *, capital_frequency: Number, capital_relation: Relation
) -> bool:
    """Whether a number of words are in capitals; `I` is one, `DON'T` two, `UP-TO-DATE` one."""
    return compare_count(_capital_words(answer), capital_relation, capital_frequency)


def _capital_words(text: str) -> Iterator[str]:
    for token in APART.split(text):
        if not token or token.islower():
            continue
        word, clitic, _ = [*CLITIC.split(token), "", ""][:3] if "'" in token else (token, "", "")
        yield from (part for part in (word, clitic, *TWO_IN_ONE.findall(token)) if part.isupper())


def is_english_in_capitals(answer: str) -> bool:
    """Whether the whole answer is English and in capitals."""
    return answer.isupper() and language_of(answer) == ENGLISH


def is_english_in_small_letters(answer: str) -> bool:
    """Whether the whole answer is English and without capitals."""
    return answer.islower() and language_of(answer) == ENGLISH


def is_in_language(answer: str, *, language: Language) -> bool:
    """Whether the whole answer is in a language."""
    return language_of(answer) == language


def is_two_responses(answer: str) -> bool:
    """Whether ****** separates exactly two responses, which differ."""
    parts = [part.strip() for part in answer.split("******")]
    match [part for part in parts if part]:
        case [first, second]:
            return first != second and all(parts[1:-1])
        case _:
            return False


def repeats_prompt(answer: str, *, prompt_to_repeat: Text) -> bool:
    """Whether the answer begins with the request; case does not matter."""
    return answer.strip().lower().startswith(prompt_to_repeat.strip().lower())


def ends_with_phrase(answer: str, *, end_phrase: Text) -> bool:
    """Whether the answer, without quotation marks around it, ends with the phrase."""
    return answer.strip().strip('"').lower().endswith(end_phrase.strip().lower())


def is_quoted(answer: str) -> bool:
    """Whether the whole answer is in double quotation marks."""
    text = answer.strip()
    return len(text) > 1 and text[0] == text[-1] == '"'


def has_no_comma(answer: str) -> bool:
    """Whether the answer is free of commas."""
    return "," not in answer
