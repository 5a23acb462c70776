import pytest

from lpfloop.configs.schema import ConfigError
from lpfloop.critics.checks import fulfils, valid_check
from lpfloop.stores.records import Check


def check(kind: str, argument: str = "") -> Check:
    return Check(kind=kind, argument=argument)


def test_each_kind_decides_as_documented(subtests):
    for kind, argument, met, unmet in [
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
    ]:
        with subtests.test(kind=kind):
            assert valid_check(kind, argument) == check(kind, argument)
            assert all(fulfils(answer, check(kind, argument)) for answer in met)
            assert not any(fulfils(answer, check(kind, argument)) for answer in unmet)


def test_undecidable_checks_are_refused(subtests):
    for kind, argument, complaint in [
        ("rhymes", "", "unknown check 'rhymes'"),
        ("max_words", "few", "number of words"),
        ("min_words", "-1", "number of words"),
        ("contains", " ", "needs a text"),
        ("json_equals", "{", "needs JSON"),
    ]:
        with subtests.test(kind=kind), pytest.raises(ConfigError, match=complaint):
            valid_check(kind, argument)


def test_hostile_json_rejected():
    for answer in ["[" * 100_000, "1" * 100_000, '{"a":' * 60_000, "\ud800"]:
        assert not fulfils(answer, check("json_valid"))
