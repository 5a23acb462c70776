"""Which judge measured each figure of a run, so that figures of different judges are kept apart.

Read from the runs' own fingerprints: critic, reward model and annotators, their templates, and the
user's own verifier.
"""

import json
from typing import Any, cast

from ....configs.annotation import INITIAL
from ....stores.keys import Json, digest
from ....stores.lake import RunReader
from .vocabulary import ANNOTATORS, CRITIC, ORACLE, REWARD_MODEL, START, VERIFIER, term_of

ANSWER_JUDGE = "judge of answers"


def judge_kind(metric: str) -> str | None:
    """Return the kind of judge that measures a metric; None if it is measured without one."""
    return term_of(metric).judge or (ANSWER_JUDGE if ":" in metric else None)


def follows(run: RunReader) -> bool:
    """Whether each iteration's policy judged its own answers; held-out ones the critic rated."""
    config = cast("dict[str, Any]", json.loads(run.journal.meta("config") or "{}"))
    return bool(config.get("recipe", {}).get("judge") == "follows")


def judges_of(run: RunReader) -> dict[str, str]:
    """Return the identity of each kind of judge of a run."""
    fingerprint = cast("dict[str, Any]", json.loads(run.journal.meta("fingerprint") or "{}"))
    config = cast("dict[str, Any]", json.loads(run.journal.meta("config") or "{}"))
    critic, assessment = config.get("critic", {}), config.get("assessment", {})
    own = {VERIFIER: critic.get("verifier"), "files": fingerprint.get("own")}
    settings = {
        name: critic.get(name) for name in ("kind", "aspects", "task_aspects", "use_reference")
    }
    reference = fingerprint.get("reference")
    compared = {name: fingerprint.get(name) for name in ("annotators", "pool")}
    against: Json = fingerprint.get("policy") if reference == INITIAL else reference
    if isinstance(reference, dict):
        places = cast("dict[str, Json]", reference)
        first = fingerprint.get("policy")
        against = {
            eval_set: first if place == INITIAL else place for eval_set, place in places.items()
        }
    judges: dict[str, Json] = {
        VERIFIER: own,
        CRITIC: [fingerprint.get("critic"), fingerprint.get("templates"), settings, own],
        REWARD_MODEL: fingerprint.get("reward"),
        ANNOTATORS: [compared, assessment.get("annotators"), against],
        ANSWER_JUDGE: fingerprint.get("scores"),
        ORACLE: assessment.get("oracle"),
        START: fingerprint.get("policy"),
    }
    return {kind: digest(judge) for kind, judge in judges.items()}
