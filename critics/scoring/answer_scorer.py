"""What a judge is asked to score one answer by a form."""

from dataclasses import dataclass
from functools import lru_cache

from ...stores.records import Prompt
from ..grading.grade_reply import Appraisal
from ..grading.graded_aspects import LOWEST
from ..guard import BARE, GuardKey
from ..judge import Question, user_message
from ..templating import defused, placeholders, render, tags
from .answer_forms import AnswerForm
from .aspect_scores import REASON, SCORE, AspectScores


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerScorer:
    """Poses the questions of a form."""

    form: AnswerForm

    def lacks_reference(self, prompt: Prompt) -> bool:
        """Whether an answer cannot be scored because its prompt has nothing to compare with."""
        there = prompt.reference is not None and bool(prompt.reference.strip())
        return self.form.needs_reference and not there

    def ask(self, prompt: Prompt, answer: str, key: GuardKey = BARE) -> Question[Appraisal]:
        """Return what asks to score an answer to `prompt` in each of its aspects."""
        form, template = self.form, self.form.file.template
        aspects = form.aspects_of(prompt)
        keys = tuple(form.key_of(aspect) for aspect in aspects)
        reference = (prompt.reference or "") if form.needs_reference else ""
        judged = tuple(filter(None, (answer, prompt.instruction, reference)))
        guard = key.over(judged, (template,))

        def shown(text: str) -> str:
            return guard.shown(defused(text, tags(template)))

        values = {
            "instruction": shown(prompt.instruction),
            "answer": shown(answer),
            "reference": shown(reference),
            "aspects": "\n".join(
                f"- {name}: {form.file.aspects[aspect].says}"
                for name, aspect in zip(keys, aspects, strict=True)
            ),
            "form": _object(keys, form.scale.best),
        }
        question = Question(
            messages=user_message(render(template, values)),
            expected=AspectScores(keys=keys, scale=form.scale),
            own_lines=_fixed_lines(template),
            judged=judged,
        )
        return question.guarded(guard)


def _object(keys: tuple[str, ...], best: int) -> str:
    """Return the object that a reply must hold, with what stands for what."""
    inner = f'{{"{REASON}": "...", "{SCORE}": {LOWEST}-{best}}}'
    return "{" + ", ".join(f'"{key}": {inner}' for key in keys) + "}"


@lru_cache
def _fixed_lines(template: str) -> frozenset[str]:
    """Return the lines of a template that stand in a question as they are."""
    lines = (line.strip() for line in template.splitlines())
    return frozenset(line for line in lines if not placeholders(line))
