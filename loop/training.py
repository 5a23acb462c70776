"""Training a policy from an iteration's rows, and publishing the checkpoint."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..configs.load import semantic
from ..configs.methods import DPOTraining, SFTTraining
from ..policies.canary import CANARY
from ..policies.training import TrainJob, TrainResult, train
from ..stores.durable import make_folder, publish_folder, write_file
from ..stores.failpoints import reach
from ..stores.garbage import CANARIES
from ..stores.journal_reader import Unit
from ..stores.keys import Json, canonical_json, derive_seed
from ..stores.lake import CHECKPOINTS
from ..stores.records import Checkpoint, Demonstration, Pair, Yield
from ..stores.schemas import TABLES
from .models import Served, is_endpoint
from .reporter import Advance
from .rows import Rows, joined
from .run import Run, Stage


class NothingToTrainOn(Exception):  # noqa: N818 -- an outcome, not an error
    """An iteration that ends before training; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """The training stage of an iteration: from M_{t-1} and its rows to M_t."""

    run: Run
    iteration: int
    parent: Checkpoint
    policy: Served

    def identity(self, rows: Rows[Pair] | Rows[Demonstration]) -> Json:
        """What the checkpoint depends on besides the rows."""
        return {
            "policy": self.policy.params,
            "reference": self._reference.identity,
            "settings": semantic(self._settings(rows)),
        }

    def require_enough(self, rows: Rows[Pair] | Rows[Demonstration]) -> None:
        """Stop the loop if training makes no sense.

        Raises:
            NothingToTrainOn: with fewer rows than `training.min_pairs`, or a policy without
            weights.
        """
        journal, table = self.run.store.journal, TABLES[rows.row_type]
        found = sum(journal.count(s.iteration, s.stage, table) for s in rows.stages)
        needed = self.run.config.training.min_pairs
        noun = "pairs" if rows.row_type is Pair else "demonstrations"
        if found < needed:
            outcomes = Counter[str]()
            for key in self._keys(rows):
                outcomes.update(y.outcome for y in self.run.store.rows(Yield, key))
            reasons = ", ".join(f"{n} {name}" for name, n in outcomes.most_common())
            raise NothingToTrainOn(
                f"iteration {self.iteration} made {found} {noun}, fewer than training.min_pairs="
                f"{needed}, so nothing was trained; prompts by outcome: {reasons}"
            )
        if is_endpoint(self.policy.location):
            raise NothingToTrainOn(
                f"iteration {self.iteration} made {found} {noun}, but the policy is served at "
                f"{self.policy.location}, so its weights can not be trained here; "
                "give their folder with --policy"
            )

    def pay(self, stage: Stage, unit: Unit, rows: Rows[Pair] | Rows[Demonstration]) -> None:
        """Train in a work folder, publish the result and commit the checkpoint."""
        self.run.models.make_room()
        self.run.verify(self.policy)
        self.run.verify(self._reference)
        work = self.run.store.folder / "work" / unit.key
        method = "dpo" if rows.row_type is Pair else "sft"
        same = self._reference.identity == self.policy.identity
        job = TrainJob(
            method=method,
            model=Path(self.policy.location),
            reference=None if same or method == "sft" else Path(self._reference.location),
            data=tuple(self._parts(rows)),
            output=work,
            settings=self._settings(rows),
            seed=derive_seed(self.run.config.seed, "train", unit.key) % 2**32,
            processes=self.run.config.training.processes,
            accelerate_config=self._accelerate_config,
        )
        store = self.run.store
        # Done again as a whole: what a failed fsync leaves of a model can not be published.
        identity, result = store.when_there_is_room(lambda: self._train_and_publish(job))
        store.when_there_is_room(lambda: self._publish_canary(identity, job))
        store.publish(store.folder / CANARIES / identity / CANARY)
        store.publish(store.folder / CHECKPOINTS / identity)
        reach("checkpoint.published")
        stage.commit(unit, {Checkpoint: [self._row(identity, result)]}, Advance(rows=result.steps))
        self.run.reporter.note(_summary(method, result))

    def _train_and_publish(self, job: TrainJob) -> tuple[str, TrainResult]:
        """Train, and publish the model under the hash of its manifest."""
        training = self.run.config.training
        result = train(
            job,
            log=self.run.logs / "train.log",
            on_poll=self.run.stop.check,
            retries=training.retries,
            stall_s=training.stall_s,
        )
        reach("checkpoint.trained")
        return publish_folder(result.output, self.run.store.folder / CHECKPOINTS), result

    def _publish_canary(self, identity: str, job: TrainJob) -> None:
        """Keep the trainer's numbers beside the model, whose name is that of its weights alone."""
        folder = make_folder(self.run.store.folder / CANARIES / identity)
        write_file(folder / CANARY, job.folder(CANARY).read_bytes())

    @property
    def _reference(self) -> Served:
        """The reference policy pi_ref: M_0, or the policy before this iteration."""
        initial = self.run.config.training.reference == "initial"
        return self.run.models.initial if initial else self.policy

    @property
    def _accelerate_config(self) -> Path | None:
        path = self.run.config.training.accelerate_config
        return None if path is None else Path(path)

    def _settings(self, rows: Rows[Pair] | Rows[Demonstration]) -> DPOTraining | SFTTraining:
        training = self.run.config.training
        return training.dpo if rows.row_type is Pair else training.sft

    def _keys(self, rows: Rows[Pair] | Rows[Demonstration]) -> list[str]:
        journal = self.run.store.journal
        return [key for keys in joined(journal, rows.stages) for key in keys]

    def _parts(self, rows: Rows[Pair] | Rows[Demonstration]) -> list[Path]:
        """Return the files to train on: those with rows, their bytes verified."""
        store, table = self.run.store, TABLES[rows.row_type]
        sizes = [(key, store.journal.parts_of(key)[table]) for key in self._keys(rows)]
        return [store.verified_path(rows.row_type, key) for key, part in sizes if part.rows]

    def _row(self, identity: str, result: TrainResult) -> Checkpoint:
        finite = {k: v for k, v in result.metrics.items() if math.isfinite(v)}
        return Checkpoint(
            checkpoint_id=identity,
            parent_id=self.parent.checkpoint_id,
            reference_id=self._reference.identity,
            iteration=self.iteration,
            recipe=self.run.config.recipe.name,
            path=f"{CHECKPOINTS}/{identity}",
            steps=result.steps,
            metrics=canonical_json(finite),
        )


def _summary(method: str, result: TrainResult) -> str:
    shown = ("loss", "rewards/accuracies", "rewards/margins", "mean_token_accuracy")
    metrics: Mapping[str, float] = result.metrics
    numbers = ", ".join(f"{name} {metrics[name]:.3f}" for name in shown if name in metrics)
    return f"trained by {method}: {result.steps} steps in {result.seconds:.0f} s; {numbers}"
