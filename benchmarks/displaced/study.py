# pyright: basic
"""One training of a run's iteration, repeated from M_{t-1} on its pairs."""

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import torch
from transformers import AutoModelForCausalLM, PrinterCallback, TrainerCallback

from lpfloop.configs.load import stored_config
from lpfloop.configs.methods import DPOTraining
from lpfloop.critics.verify import Verifier
from lpfloop.loop.data.splits import HELD_OUT
from lpfloop.loop.tiny.human import UnknownExerciseError, exercise_of
from lpfloop.policies.engines.chat_template import load_tokenizer
from lpfloop.policies.trainers.job import TrainJob, write_job
from lpfloop.policies.trainers.trl_trainer import make_trainer
from lpfloop.stores.keys import derive_seed
from lpfloop.stores.lake import RunReader
from lpfloop.stores.records import Check, Message, Prompt

from .arms import ARMS, AS_IT_WAS, Arm
from .measured import SpokenPair, greedy, spoken, summary, token_logprobs

WATCHED, LOOKS = 64, 4
"""Pairs of each task measured during training, and the number of measurements."""
METRICS = ("math_accuracy", "general_fulfilled", "sentence_match")


def family_of(prompt: Mapping[str, Any]) -> str:
    """Return the name of a prompt's group in reports: its family, the tiny world's, or its task."""
    if prompt.get("family"):
        return str(prompt["family"])
    try:
        return f"{prompt['task']} {exercise_of(prompt['messages'][0]['content']).kind}"
    except UnknownExerciseError:
        return str(prompt["task"])


@dataclass(frozen=True, kw_only=True)
class Source:
    """A run, its held-out prompts of some tasks, and its settings."""

    run: RunReader
    settings: DPOTraining
    seed: int
    prompts: Mapping[str, Mapping[str, Any]]
    asked: Sequence[Prompt]
    most: int

    @classmethod
    def of(cls, folder: Path, tasks: Sequence[str]) -> "Source":
        """Read a run."""
        run = RunReader(folder)
        config = stored_config(json.loads(run.journal.meta("config") or "{}"), (), {}, to_run=False)
        rows = run.scan("prompts").collect().to_dicts()
        held = [r for r in rows if r["split"] == "held-out" and r["task"] in tasks]
        return cls(
            run=run,
            settings=config.training.dpo,
            seed=config.seed,
            prompts={row["prompt_id"]: row for row in rows},
            asked=[read_prompt(row) for row in held],
            most=config.evaluation.max_tokens,
        )

    def model(self, iteration: int) -> Path:
        """Return the folder of M_t."""
        rows = self.run.scan("checkpoints").filter(pl.col("iteration") == iteration).collect()
        path = str(rows["path"][0])
        if path == "tiny":
            import lpfloop.loop.tiny

            return Path(str(lpfloop.loop.tiny.__file__)).parent / "models" / "policy"
        return self.run.folder / path if not Path(path).is_absolute() else Path(path)

    def trained(self) -> set[int]:
        """Return the iterations that trained a policy."""
        rows = self.run.scan("checkpoints").filter(pl.col("steps") > 0).collect()
        return set(rows["iteration"].to_list())

    def key(self, iteration: int) -> str:
        """Return the key of the unit that trained M_t."""
        (part,) = self.run.journal.parts(table="checkpoints", iteration=iteration)
        return part.unit

    def scores(self, iteration: int) -> list[float]:
        """Return the held-out prompts that M_t solves, from the run's measurement."""
        wanted = pl.col("metric").is_in(METRICS) & (pl.col("benchmark") == HELD_OUT)
        rows = self.run.scan("scores", iteration=iteration).filter(wanted).collect()
        by_prompt = dict(rows.select("prompt_id", "value").iter_rows())
        return [by_prompt[prompt.prompt_id] for prompt in self.asked]

    def pairs(self, iteration: int) -> list[dict[str, Any]]:
        """Return an iteration's pairs in their training order."""
        parts = self.run.journal.parts(table="pairs", iteration=iteration)
        parts = sorted(parts, key=lambda part: part.chunk)
        return self.run.scan_parts("pairs", parts).collect().to_dicts()


def read_prompt(row: Mapping[str, Any]) -> Prompt:
    """Return the prompt of a row."""
    return Prompt(
        **{
            **row,
            "messages": tuple(Message(**m) for m in row["messages"]),
            "checks": tuple(Check(**c) for c in row["checks"]),
        }
    )


class Watch(TrainerCallback):
    """Measures some pairs of each task during training."""

    def __init__(self, pairs: Mapping[str, Sequence[SpokenPair]]) -> None:
        self.pairs = pairs
        self.told: list[Any] = []

    def look(self, step: int, model: Any) -> None:
        """Measure them."""
        model.eval()
        self.told.append(
            [step, {t: means(summary(p, token_logprobs(model, p))) for t, p in self.pairs.items()}]
        )
        model.train()

    def on_train_begin(self, _args: Any, _state: Any, _control: Any, model: Any = None, **_: Any):
        """Measure M_{t-1}."""
        self.look(0, model)

    def on_step_end(self, _args: Any, state: Any, _control: Any, model: Any = None, **_: Any):
        """Measure at some of the steps."""
        places = [round(part * state.max_steps / LOOKS) for part in range(1, LOOKS + 1)]
        if state.global_step in places:
            self.look(state.global_step, model)


def means(rows: Sequence[Any]) -> list[list[float]]:
    """Return the mean over pairs of each number of each side."""
    return torch.tensor(rows).mean(dim=0).tolist()


@dataclass
class Study:
    """The trainings of one iteration of one run, with one measurement of M_{t-1}."""

    source: Source
    iteration: int
    work: Path
    verifier: Verifier

    def __post_init__(self) -> None:
        self.start = self.source.model(self.iteration - 1)
        self.tokenizer = load_tokenizer(self.start, None)
        self.rows = self.source.pairs(self.iteration)
        tasks = {prompt.task for prompt in self.source.asked}
        prompts = self.source.prompts
        rows = [row for row in self.rows if prompts[row["prompt_id"]]["task"] in tasks]
        about = [prompts[row["prompt_id"]] for row in rows]
        self.pairs = [
            spoken(row, asked["task"], family_of(asked), self.tokenizer)
            for row, asked in zip(rows, about, strict=True)
        ]
        self.verified = {
            side: self.right(
                [(read_prompt(prompts[row["prompt_id"]]), row[side][-1]["content"]) for row in rows]
            )
            for side in ("chosen", "rejected")
        }
        ids = (
            [{"role": m.role, "content": m.content} for m in p.messages] for p in self.source.asked
        )
        render = self.tokenizer.apply_chat_template
        self.asked = [render(x, add_generation_prompt=True, return_dict=False) for x in ids]
        self.watched = {
            task: [pair for pair in self.pairs if pair.task == task][::step][:WATCHED]
            for task, step in ((task, 3) for task in sorted(tasks))
        }
        model = AutoModelForCausalLM.from_pretrained(self.start, dtype=torch.float32)
        self.before = {
            "pairs": summary(self.pairs, token_logprobs(model, self.pairs)),
            "right": self.source.scores(self.iteration - 1),
        }

    def measured(self, model: Any) -> dict[str, Any]:
        """Return a policy's log-probabilities of each pair, and the held-out prompts it solves."""
        model.eval()
        rows = summary(self.pairs, token_logprobs(model, self.pairs))
        answers = greedy(model, self.tokenizer, self.asked, self.source.most)
        right = self.right(list(zip(self.source.asked, answers, strict=True)))
        return {"pairs": rows, "right": right}

    def right(self, answers: list[tuple[Prompt, str]]) -> list[float]:
        """Return 1 for each answer that passes the verifier, else 0."""
        verdicts = self.verifier.verify(answers)
        return [next((v for n, v in verdict.metrics if n in METRICS), 0.0) for verdict in verdicts]

    def observed(self) -> dict[str, Any]:
        """Return the effects of the run's training."""
        model: Any = AutoModelForCausalLM.from_pretrained(
            self.source.model(self.iteration), dtype=torch.float32
        )
        after = {
            "pairs": summary(self.pairs, token_logprobs(model, self.pairs)),
            "right": self.source.scores(self.iteration),
        }
        told = self.source.run.scan("statistics", iteration=self.iteration)
        return self.row(AS_IT_WAS, after, told.collect().to_dicts())

    def row(self, name: str, after: Mapping[str, Any], history: Any) -> dict[str, Any]:
        """Return a result."""
        return {
            "run": self.source.run.folder.parent.parent.name,
            "seed": self.source.seed,
            "iteration": self.iteration,
            "arm": name,
            "history": history,
            "pairs": self.by_family(self.before["pairs"], after["pairs"]),
            "held_out": self.held_out(after["right"]),
            "right": [int(v > 0.5) for v in after["right"]],
        }

    def run(self, name: str) -> dict[str, Any]:
        """Train an arm; return its effects, by family."""
        if name == AS_IT_WAS:
            return self.observe()
        arm, began = ARMS[name], time.monotonic()
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)
        job = self.job(arm)
        write_job(job)
        trainer: Any = make_trainer(job, self.tokenizer)
        trainer.remove_callback(PrinterCallback)
        watch = Watch(self.watched)
        trainer.add_callback(watch)
        trainer.train()
        after = self.measured(trainer.model)
        history = [h for h in trainer.state.log_history if "loss" in h]
        told = {"steps": watch.told, "seconds": time.monotonic() - began}
        return {**self.row(name, after, history), **told}

    def job(self, arm: Arm) -> TrainJob:
        """Return the job of an arm; the arm of Eq. 3 repeats the run's job."""
        data = self.work / "pairs.parquet"
        part = next(p for p in self.source.run.files("pairs"))
        rows = arm.rows(self.rows)
        pl.DataFrame(rows, schema=pl.read_parquet_schema(part)).write_parquet(data)
        settings = DPOTraining.model_validate(
            {
                **self.source.settings.model_dump(),
                "learning_rate": self.source.settings.learning_rate * arm.rate,
                **arm.update,
            }
        )
        key = self.source.key(self.iteration)
        order = (key, arm.order) if arm.order else (key,)
        return TrainJob(
            method="dpo",
            model=self.start,
            reference=self.source.model(0) if arm.initial and self.iteration > 1 else None,
            data=(data,),
            output=self.work / "job",
            settings=settings,
            seed=derive_seed(self.source.seed, "train", *order) % 2**32,
        )

    def by_family(self, before: Sequence[Any], after: Sequence[Any]) -> dict[str, Any]:
        """Return each family's number of pairs, means before and after, and share that fell."""
        found: dict[str, Any] = {}
        verified = [(f"{side}_right", values) for side, values in self.verified.items()]
        for family in sorted({pair.family for pair in self.pairs}):
            places = [n for n, pair in enumerate(self.pairs) if pair.family == family]
            then, now = [before[n] for n in places], [after[n] for n in places]
            fell = sum(b[0][0] < a[0][0] for a, b in zip(then, now, strict=True)) / len(places)
            found[family] = {
                "task": self.pairs[places[0]].task,
                "n": len(places),
                "before": means(then),
                "after": means(now),
                "fell": fell,
                **{side: sum(v[n] for n in places) / len(places) for side, v in verified},
            }
        return found

    def held_out(self, right: Sequence[float]) -> dict[str, Any]:
        """Return the share of right answers to the prompts of each family, before and after."""
        found: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for prompt, then, now in zip(self.source.asked, self.before["right"], right, strict=True):
            family = family_of(self.source.prompts[prompt.prompt_id])
            found.setdefault((prompt.task, family), []).append((then, now))
        return {
            family: {
                "task": task,
                "n": len(values),
                "before": sum(v[0] for v in values) / len(values),
                "after": sum(v[1] for v in values) / len(values),
            }
            for (task, family), values in found.items()
        }
