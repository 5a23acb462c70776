"""Sentences of an English text, ended as Punkt ends them (Kiss and Strunk, 2006).

IFEval counts with nltk's Punkt, whose trained parameters have to be downloaded. This has its rules,
with short lists instead of the parameters: a period ends a sentence unless it belongs to an
abbreviation or an initial; a new line does not end one; `1.` before a capital does.
"""

import re
from collections.abc import Iterator
from itertools import pairwise

MARKS = ".?!"
POINTS = ";:,.!?"
CLOSERS = "\"')]}"
"""Characters after the end of a sentence that still belong to it."""
WORDLESS = r"[)\";}\]*:@'({\[?!]"
RUN = r"-{2,}|\.{2,}"
ENDS_IN_WORD = re.compile(rf"[.?!](?={WORDLESS})")
TOKEN = re.compile(
    rf"{RUN}|[^\s(\"`{{\[:;&#*@)}}\]\-,]\S*?(?=\s|$|{WORDLESS}|{RUN}|,(?=$|\s|{WORDLESS}|{RUN}))|\S"
)
NUMBER = re.compile(r"-?[.,]?\d[\d,.-]*\.")
INITIAL = re.compile(r"[^\W\d]\.")
ABBREVIATED = """
a.d a.m adj adm al approx apr apt assn assoc aug ave b.c blvd bros c.e ca capt cf ch cie co col
comdr conn corp cpl ct d.c dec dept dist dr e.g ed eds eq esp est etc ext fam feb fig figs fla
fri ft ga gen gov hon hr hrs i.e inc incl inst jan jr kan l.a lb lbs lt ltd maj max messrs mfg
mgr mich minn misc mo mon mr mrs ms msgr mt n.j n.y nov oct okla oz p.m ph.d phil pl pp prof
prop pt pvt rd rep reps ret rev sen sens sept sgt sr st ste supt tel temp tenn thur thurs tues
u.k u.n u.s u.s.a va vol vols vs vt wis yd yr
"""
SMALL = """
a about after all also although among an and another any are as at because before both but by
can could despite did do does during each even every finally first for from had has have he her
here his how however i if in instead is it its just last later let many maybe moreover most my
nevertheless no not now of on once one or other our perhaps please second she should similarly
since so some still such thank that the their then there therefore these they this those though
thus to two under until was we well were what when where while who why will with would yes yet
you your
"""
ABBREVIATIONS = frozenset(ABBREVIATED.split())
STARTERS = frozenset(SMALL.split())
"""Words that are written small unless they begin a sentence."""


def sentences_of(text: str) -> Iterator[str]:
    """Yield the last word of each sentence."""
    rest, closed = "", False
    for word, following in pairwise([*text.split(), ""]):
        if closed and not word.strip(CLOSERS):
            closed = False
            continue
        end, rest = _ending(word, following)
        closed = end == word
        if end:
            yield end
    if rest:
        yield rest


def _ending(word: str, following: str) -> tuple[str, str]:
    """Return the part of a word that ends a sentence, and the part that begins the next one."""
    if following and word.endswith(("?", "!")):
        return word, ""
    if "." not in word and "?" not in word and "!" not in word:
        return "", word
    place = _last_mark(word, following)
    if place is None:
        return "", word
    head, rest = word[: place + 1], word[place + 1 :]
    if not _is_broken(head, rest[:1], following):
        return "", word
    return head, rest.lstrip(CLOSERS)


def _is_broken(head: str, closer: str, following: str) -> bool:
    """Whether a sentence ends within a word, or after it, given the next text."""
    if head[:-1].isalnum() and not closer:
        return _ends(head, next(TOKEN.finditer(following)).group())
    context = head + closer if closer else f"{head} {following}"
    return any(_ends(one, other) for one, other in pairwise(TOKEN.findall(context)))


def _last_mark(word: str, following: str) -> int | None:
    """Return the place of the last mark of a word that might end a sentence."""
    if word[-1] in MARKS and following:
        return len(word) - 1
    ends = [match.start() for match in ENDS_IN_WORD.finditer(word)]
    return ends[-1] if ends else None


def _ends(token: str, following: str) -> bool:
    """Whether a token ends a sentence, given the next one."""
    if token in MARKS:
        return True
    if not token.endswith("."):
        return False
    if INITIAL.fullmatch(token):
        is_name = following[0].isupper() and not _is_starter(following)
        return _may_start(following) and not is_name
    if NUMBER.fullmatch(token):
        return _may_start(following)
    bare = token[:-1].lower()
    if token.endswith("..") or {bare, bare.rpartition("-")[2]} & ABBREVIATIONS:
        return _is_starter(following)
    return True


def _may_start(token: str) -> bool:
    """Whether a sentence could start so: with neither a small letter nor punctuation."""
    return not (token[0].islower() or token in POINTS)


def _is_starter(token: str) -> bool:
    return token[0].isupper() and token.lower().removesuffix(".") in STARTERS
