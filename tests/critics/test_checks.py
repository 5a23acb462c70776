import pytest

from lpfloop.configs.schema import ConfigError
from lpfloop.critics.checks import CHECKS, fulfils, known_check, valid_check
from lpfloop.stores.records import Check


def check(kind: str, argument: str = "") -> Check:
    return Check(kind=kind, argument=argument)


@pytest.mark.parametrize(
    ("kind", "argument", "met", "unmet"),
    [
        ("equals", "cba", [" cba.\n", "cba"], ["CBA", "cba cba", ""]),
        ("ends_with", "c b a.", ["Sure! c b  a", "c b a."], ["c b a!", "c b a d"]),
        ("starts_with", "Dear Ben", ["Dear  Ben, hi"], ["dear Ben", "Hi. Dear Ben"]),
        ("contains", "blue sky", ["A Blue\nsky."], ["sky blue"]),
        ("excludes", "sorry", ["Fine."], ["I am Sorry."]),
        ("json_valid", "", ['{"a": [1]}', "3", '```json\n{"a": 1}\n```'], ["{a: 1}", "", "NaN"]),
        ("json_equals", '{"a": 1}', ['{ "a":1 }'], ['{"a": true}', '{"a": 1, "a": 1}', "{}"]),
        ("json_equals", "[1, true]", ["[1,true]"], ["[true,1]", "[1]", "[1, 1]"]),
        ("max_words", "2", ["one two", ""], ["one two three"]),
        ("min_words", "2", ["one two"], ["one"]),
        ("uppercase", "", ["ABC 1"], ["ABc", "1"]),
        ("lowercase", "", ["abc 1"], ["aBc", ""]),
        ("self_identifies", "Tiny Al", ["I am TINY AL."], ["I am Tiny Alma.", "I am Al."]),
    ],
)
def test_each_kind_decides_as_documented(kind, argument, met, unmet):
    assert valid_check(kind, argument) == check(kind, argument)
    assert all(fulfils(answer, check(kind, argument)) for answer in met)
    assert not any(fulfils(answer, check(kind, argument)) for answer in unmet)


def test_every_kind_is_known_and_nothing_else():
    assert all(known_check(kind) for kind in CHECKS)
    assert not known_check("rhymes")


@pytest.mark.parametrize(
    ("kind", "argument", "complaint"),
    [
        ("rhymes", "", "unknown check 'rhymes'"),
        ("max_words", "few", "number of words"),
        ("min_words", "-1", "number of words"),
        ("contains", " ", "needs a text"),
        ("json_equals", "{", "needs JSON"),
    ],
)
def test_a_check_that_can_not_be_decided_is_refused(kind, argument, complaint):
    with pytest.raises(ConfigError, match=complaint):
        valid_check(kind, argument)


@pytest.mark.parametrize("answer", ["[" * 100_000, "1" * 100_000, '{"a":' * 60_000, "\ud800"])
def test_hostile_json_is_no_json(answer):
    assert not fulfils(answer, check("json_valid"))
