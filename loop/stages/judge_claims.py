"""Judging the statements of answers: is each supported by the reference of its prompt?

The critic, or a model of natural language inference (`infer_claims`), gives a verdict on each
statement. A statement that repeats an earlier one of its answer is judged once; statements beyond
`facts.most` are stored without a verdict.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ...critics.facts.fact_judge import SUPPORT, FactJudge, StatementSupport
from ...critics.facts.fact_score import BEYOND
from ...critics.judge import Reading
from ...stores.keys import Json, derive_seed
from ...stores.records import Breakdown, Claim
from ..run.handles import Rows
from ..run.iteration import Iteration
from ..run.run import Verb
from .infer_claims import Inferring, JudgedStatement, StatementsOf, claim_id, claim_of
from .judging import JudgedStage, JudgeRequest, Posed, judge_line, judge_params
from .retry_unscored import judged

JUDGE_CLAIMS = Verb("judge_claims")
JudgedStatements = tuple[JudgedStatement, ...]


def judge_claims(it: Iteration, broken: Rows[Breakdown], judge: FactJudge) -> Rows[Claim]:
    """Commit the verdict on each statement."""
    run, label, most = it.run, f"judge_claims:{broken.label}", it.run.config.facts.most

    def statements(chunk: int) -> list[JudgedStatement]:
        return list(statements_of(it.chunk(broken, chunk), most))

    if run.models.nli_id is None:
        config = run.config.critic
        judging = JudgingClaims(
            run=run,
            iteration=it.number,
            line=judge_line(run, run.models.feedback, config),
            attempts=config.attempts,
            templates=judge,
            statements=statements,
        )
        planned = judged(judging, label, it.work(JUDGE_CLAIMS, judging.params, broken))
    else:
        inferring = Inferring(run, it.number, run.models.nli_id, statements)
        planned = inferring.planned(label, it.work(JUDGE_CLAIMS, inferring.identity, broken))
    return Rows(row_type=Claim, stages=(planned,), called=broken.label)


@dataclass(frozen=True, kw_only=True)
class JudgingClaims(JudgedStage[JudgedStatements, StatementSupport, Claim]):
    """A stage of claims by the critic, which judges several statements of an answer at once."""

    row_type = Claim
    templates: FactJudge
    statements: StatementsOf

    def depends_on(self) -> Mapping[str, Json]:
        """Return the template, the critic's settings and the limits of statements."""
        config = self.run.config.facts
        return {
            "most": config.most,
            "together": config.together,
            "template": self.templates.digest(SUPPORT),
            **judge_params(self.run, self.judge, self.run.config.critic),
        }

    def subjects(self, chunk: int) -> Iterable[JudgedStatements]:
        """Return the statements of each answer in groups of at most `facts.together`."""
        size = self.run.config.facts.together
        by_answer = dict[tuple[str, bool], list[JudgedStatement]]()
        for statement in self.statements(chunk):
            key = (statement.candidate_id, statement.beyond)
            by_answer.setdefault(key, []).append(statement)
        for of in by_answer.values():
            yield from (tuple(of[first : first + size]) for first in range(0, len(of), size))

    def pose(self, subject: JudgedStatements, attempt: int) -> Posed[StatementSupport]:
        """Ask which of the statements the reference supports."""
        prompt, name = self.run.prompts[subject[0].prompt_id], self._id(subject[0])
        texts = [statement.text for statement in subject]
        question = self.templates.ask_support(prompt, texts, self.guard(name))
        seed = derive_seed(self.run.config.seed, "judge claims", name, attempt)
        return Posed(question, name, seed)

    def ids(self, subject: JudgedStatements) -> list[str]:
        """Return the ids of the claims."""
        return [self._id(statement) for statement in subject]

    def unasked(self, subject: JudgedStatements) -> list[Reading[StatementSupport]] | None:
        """Return that statements beyond the most are not judged."""
        beyond = Reading(BEYOND, StatementSupport())
        return [beyond] * len(subject) if subject[0].beyond else None

    def rows(self, asked: JudgeRequest[JudgedStatements, StatementSupport]) -> Iterator[Claim]:
        """Return a claim for each statement."""
        for statement, reading in zip(asked.subject, asked.readings, strict=True):
            claim = claim_of(statement, self.identity, self.iteration, reading)
            yield replace(
                claim, judge=self.judge.identity, attempts=asked.attempts, text=asked.text
            )

    def _id(self, statement: JudgedStatement) -> str:
        return claim_id(statement, self.identity)


def statements_of(broken: Sequence[Breakdown], most: int) -> Iterator[JudgedStatement]:
    """Yield the different statements of each answer, in the order of its passages."""
    by_answer = dict[str, list[Breakdown]]()
    for row in broken:
        by_answer.setdefault(row.candidate_id, []).append(row)
    for rows in by_answer.values():
        told = dict[str, str]()
        for row in sorted(rows, key=lambda one: one.place):
            for text in row.statements:
                told.setdefault(" ".join(text.casefold().split()), text)
        for place, text in enumerate(told.values()):
            yield JudgedStatement(
                rows[0].candidate_id, rows[0].prompt_id, place, text, place >= most
            )
