"""The verifier's verdicts on candidates, stored as critiques whose rows name it as the critic.

No model is involved, so verdicts are never retried.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from ...critics.verify import Verdict, VerifierCritic
from ...stores.journal_reader import Unit
from ...stores.keys import Json, row_id
from ...stores.records import Candidate, Critique
from ...stores.schemas import RowsByType
from ..data.judged_candidates import VERIFIER
from ..run.handles import Planned, Rows
from ..run.iteration import Iteration
from ..run.reporter import UnitStats
from ..run.run import Run, Verb, Work
from ..run.stage import Stage
from .judging import commit_judgements

VERIFY = Verb("verify")
FIRST = 1
"""The number of a candidate's first critique."""
SAMPLES_TEMPERATURE = 0.7
"""The temperature of the critiques of a candidate after the first."""


def verify(it: Iteration, candidates: Rows[Candidate]) -> Rows[Critique]:
    """Commit the verifier's verdict on each whole candidate whose prompt it can verify."""
    can = it.run.verifier.can_verify
    verifying = Verifying(
        run=it.run,
        iteration=it.number,
        candidates=lambda chunk: [
            c for c in it.chunk(candidates, chunk) if c.usable and can(it.run.prompts[c.prompt_id])
        ],
    )
    work = it.work(VERIFY, {**verifying.identity, "verifiable": True}, candidates)

    def make(unit: Unit) -> RowsByType:
        return {Critique: verifying.critiques(verifying.candidates(unit.chunk))}

    return it.rows(Critique, f"verify:{candidates.label}", work, make)


@dataclass(frozen=True, kw_only=True)
class Verifying:
    """A stage of verdicts, one per candidate; `candidates` returns a chunk's when it begins.

    `sample` numbers the critiques of a candidate. If a candidate's id does not determine its text
    (an answer that is sampled again), a critique's id includes the text (`by_text`).
    """

    run: Run
    iteration: int
    candidates: Callable[[int], Sequence[Candidate]]
    sample: int = FIRST
    by_text: bool = False
    committed: Callable[[int], None] = lambda _: None

    @cached_property
    def identity(self) -> Mapping[str, Json]:
        """Every input of a critique except its candidate."""
        judge: dict[str, Json] = {"kind": "verifier", "verifier": verifier_critic(self.run).digest}
        return {**judge, **sample_params(self.sample)}

    @property
    def params(self) -> Mapping[str, Json]:
        """The parameters of the units' keys, without the candidates."""
        return self.identity

    def plan(self, label: str, work: Work) -> Planned:
        """Plan and run the stage."""
        return self.run.run_stage(self.iteration, label, work, self._run_units, judge=True)

    def critiques(self, candidates: Sequence[Candidate]) -> list[Critique]:
        """Return the verdicts on candidates, as critiques."""
        pairs = zip(candidates, verdicts(self.run, candidates), strict=True)
        return [self._critique(candidate, verdict) for candidate, verdict in pairs]

    def critique_id(self, candidate: Candidate) -> str:
        """Return the id of the verdict on a candidate."""
        return critique_id(candidate, self.identity, by_text=self.by_text)

    def _run_units(self, stage: Stage) -> None:
        for unit in stage.units():
            rows = self.critiques(self.candidates(unit.chunk))
            commit_judgements(stage, unit, Critique, rows, UnitStats())
            self.committed(unit.chunk)

    def _critique(self, candidate: Candidate, verdict: Verdict) -> Critique:
        prompt, critic = self.run.prompts[candidate.prompt_id], verifier_critic(self.run)
        reading = critic.read(prompt, verdict)
        return about(candidate, self.iteration, self.sample)(
            critique_id=self.critique_id(candidate),
            critic=VERIFIER,
            aspects=reading.value,
            text=critic.text(prompt, verdict),
            reference_used=prompt.reference is not None,
            status=reading.status,
            attempts=1,
        )


def verdicts(run: Run, candidates: Sequence[Candidate]) -> Sequence[Verdict]:
    """Return the verifier's verdicts on candidates."""
    return run.verifier.verify([(run.prompts[c.prompt_id], c.text) for c in candidates])


def verifier_critic(run: Run) -> VerifierCritic:
    """Return how the run's verifier writes critiques."""
    verifier = run.verifier
    return VerifierCritic(
        task_aspects=run.config.critic.task_aspects,
        own=verifier.own,
        sentence_match=verifier.sentence_match,
        limit_s=verifier.limit_s,
    )


def critique_id(candidate: Candidate, identity: Mapping[str, Json], *, by_text: bool) -> str:
    """Return the id of the critique of a candidate by a critic of this identity."""
    text = (candidate.text,) if by_text else ()
    return row_id("crit", [candidate.candidate_id, identity, *text])


def about(candidate: Candidate, iteration: int, sample: int) -> partial[Critique]:
    """Return a critique's row without its judgement."""
    return partial(
        Critique,
        candidate_id=candidate.candidate_id,
        prompt_id=candidate.prompt_id,
        iteration=iteration,
        sample=sample if sample > FIRST else None,
    )


def sample_params(sample: int) -> Mapping[str, Json]:
    """Return the parameters that distinguish a candidate's later critiques from its first one."""
    if sample == FIRST:
        return {}
    return {"sample": sample, "temperature": SAMPLES_TEMPERATURE}
