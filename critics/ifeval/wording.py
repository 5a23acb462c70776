"""Words and letters that an answer must have or avoid: IFEval's `keywords` and `change_case`.

Keywords are taken literally; the authors' code reads them as regular expressions, in which `c++` is
not a word, and some patterns never finish.
"""

import re
from collections.abc import Iterator

from .arguments import compare_count
from .languages import language_of

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


def has_keywords(answer: str, *, keywords: list[str]) -> bool:
    """Whether each keyword is in the answer, also within words."""
    return all(re.search(re.escape(word), answer, re.IGNORECASE) for word in keywords)


def has_keyword_often(answer: str, *, keyword: str, frequency: int, relation: str) -> bool:
    """Whether the keyword is there so often, also within words."""
    found = re.finditer(re.escape(keyword), answer, re.IGNORECASE)
    return compare_count(found, relation, frequency)


def avoids_words(answer: str, *, forbidden_words: list[str]) -> bool:
    """Whether none of the words is in the answer as a whole word."""
    return not any(
        re.search(rf"(?<!\w){re.escape(word)}(?!\w)", answer, re.IGNORECASE)
        for word in forbidden_words
    )


def has_letter_often(answer: str, *, letter: str, let_frequency: int, let_relation: str) -> bool:
    """Whether a letter, large or small, or another character is there so often."""
    return compare_count(range(answer.lower().count(letter)), let_relation, let_frequency)


def has_capital_words(answer: str, *, capital_frequency: int, capital_relation: str) -> bool:
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


def is_in_language(answer: str, *, language: str) -> bool:
    """Whether the whole answer is in a language."""
    return language_of(answer) == language
