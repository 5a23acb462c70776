"""The lake at the papers' scale: 80,000 prompts x 30 candidates, each critiqued and rewarded.

    python benchmarks/lake.py --folder /tmp/lake                  # 2.4 million of each, and 240,000
    python benchmarks/lake.py --folder /tmp/lake --prompts 800 8000

For each number of prompts, writes one iteration of synthetic rows of realistic length (about 1.5
kB per candidate, 1 kB per critique with five aspects) with the store's commit, seals it, and
queries it: pairs, `show`, `sql`, `search`, and the time that hashing adds to a first read. Then it
adds the rest of the iteration (refinements, pairs, training, measurements), and reports all of it.
Each measurement runs in a separate process; the table shows its peak resident memory next to its
seconds. Peers get the same rows: PyArrow's `write_table` writes the rows that the store commits,
and a pandas group-by pairs by the same rule. The last lines give the cost of a row in the largest
run, divided by its cost in the smallest. `lake_in_bucket.py` measures the same lake in a bucket.
"""

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from synthetic import (
    CANDIDATES,
    STAGES,
    Synthetic,
    configuration,
    plan,
    prompt_name,
    run_name,
    text_source,
)
from synthetic_rest import REFINEMENTS, write_rest

BATCH = 8
"""Units to make, and then commit, at a time."""
PEER_PROMPTS = 8_000
"""Maximal number of prompts for the peers: more would not fit into memory."""
SHOWN = 20
ROUNDS = 5
TOP_K = 3
WORDS_SOUGHT = 3
AVERAGES = "select task, aspect, avg(rating), count(*) from ratings group by all order by all"
MIB = 2**20


def write(lake: Path, prompts: int) -> dict[str, float]:
    """Commit the iteration, in turns with plain writes of the same tables, and of the same rows."""
    import pyarrow.parquet as pq

    from lpfloop.stores.journal import Journal
    from lpfloop.stores.lake import RunWriter, run_folder
    from lpfloop.stores.schemas import to_table

    folder, bare = run_folder(lake, run_name(prompts)), lake / "bare"
    bare.mkdir(parents=True, exist_ok=True)
    data = Synthetic(prompts)
    store = RunWriter(Journal.create(folder, {"fingerprint": "{}", "config": configuration()}))
    plan(store, data)
    seconds = {"lpfloop": 0.0, "bare": 0.0, "rows": 0.0}
    rates: dict[str, list[float]] = {"lpfloop": [], "bare": [], "rows": []}
    for batch in batched(list(enumerate(data.chunks))):
        units = [(number, data.rows(chunk)) for number, chunk in batch]
        count = sum(len(rows) for _, tables in units for rows in tables.values())
        tables = [to_table(kind, rows) for _, unit in units for kind, rows in unit.items()]

        def commit(units: Sequence[Any] = units) -> None:
            for number, rows in units:
                for kind, found in rows.items():
                    key = store.journal.key(1, STAGES[kind.__name__], number)
                    store.commit(key, {kind: found}, {"rows": len(found)})
            store.flush()

        def write_bare(tables: Sequence[Any] = tables, start: int = batch[0][0]) -> None:
            for number, table in enumerate(tables):
                pq.write_table(table, bare / f"{start}-{number}.parquet", compression="zstd")

        def write_rows(units: Sequence[Any] = units) -> None:
            write_bare([to_table(kind, rows) for _, unit in units for kind, rows in unit.items()])

        sides = [("lpfloop", commit), ("bare", write_bare), ("rows", write_rows)]
        for side, action in sides if batch[0][0] // BATCH % 2 else sides[::-1]:
            spent = timed(action)
            seconds[side] += spent
            rates[side].append(count / spent)
        shutil.rmtree(bare)
        bare.mkdir()
    sealing = timed(store.close)
    total = prompts * CANDIDATES * 3
    return {
        "sealing": sealing,
        "rows": total,
        "seconds": seconds["lpfloop"],
        "bare_seconds": seconds["bare"],
        "rate": total / seconds["lpfloop"],
        "ratio": median(a / b for a, b in zip(rates["lpfloop"], rates["bare"], strict=True)),
        "rows_ratio": median(a / b for a, b in zip(rates["lpfloop"], rates["rows"], strict=True)),
    }


def batched(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Yield the items a few at a time."""
    for start in range(0, len(items), BATCH):
        yield items[start : start + BATCH]


def timed(action: Callable[[], object]) -> float:
    """Return the seconds an action takes."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def pandas_pairs(lake: Path, prompts: int) -> dict[str, float]:
    """Pair by the same rule with a plain pandas group-by."""
    import pandas as pd

    from lpfloop.loop.lake.query.runs import open_run

    started = time.perf_counter()
    run = open_run(lake, run_name(prompts))
    columns = {
        "candidates": ["candidate_id", "prompt_id", "finish_reason", "text"],
        "critiques": ["candidate_id", "status", "aspects"],
        "rewards": ["candidate_id", "score"],
    }
    frames = [
        run.scan(table, iteration=1).select(names).collect().to_pandas()
        for table, names in columns.items()
    ]
    prompt = run.scan("prompts").select("prompt_id", "messages").collect().to_pandas()
    messages = prompt.set_index("prompt_id")["messages"]
    judged = frames[0].merge(frames[1], on="candidate_id").merge(frames[2], on="candidate_id")
    judged = judged[(judged.finish_reason == "stop") & (judged.status == "scored")]
    ratings = judged.aspects.map(lambda aspects: [aspect["rating"] for aspect in aspects])
    judged["positive"] = ratings.map(lambda found: all(rating == 1 for rating in found))
    judged["text"] = judged.text.map(lambda text: " ".join(text.split()))

    def pair(group: pd.DataFrame) -> pd.DataFrame:
        positive = group[group.positive].sort_values("score", ascending=False).head(TOP_K)
        negative = group[~group.positive].sample(frac=1, random_state=0)
        count = min(len(positive), len(negative))
        return pd.DataFrame(
            {
                "prompt": [messages[group.name]] * count,
                "chosen": [answer(text) for text in positive.text[:count]],
                "rejected": [answer(text) for text in negative.text[:count]],
            }
        )

    pairs = judged.groupby("prompt_id")[["positive", "score", "text"]].apply(pair)
    seconds = time.perf_counter() - started
    run.close()
    return {"seconds": seconds, "pairs": len(pairs)}


def own_pairs(lake: Path, prompts: int) -> dict[str, float]:
    """Pair in memory, like `rebuild-pairs`."""
    from lpfloop.loop.data.pairs import Pairing
    from lpfloop.loop.lake.derive.rebuild_pairs import derive
    from lpfloop.loop.lake.query.runs import open_run
    from lpfloop.stores.records import Pair

    started = time.perf_counter()
    run = open_run(lake, run_name(prompts))
    how = Pairing(rule="success_vs_failure", top_k=TOP_K, root_seed=0, iteration=1)
    made = [made.rows for made in derive(run, Pair, how)]
    seconds = time.perf_counter() - started
    run.close()
    return {"seconds": seconds, "pairs": sum(rows.height for rows in made)}


def answer(text: str) -> list[dict[str, str]]:
    """Return a text in TRL's format."""
    return [{"role": "assistant", "content": text}]


def in_session(lake: Path, prompts: int) -> dict[str, float]:
    """Show prompts in one open session."""
    import lpfloop

    with lpfloop.open(run_name(prompts), lake=lake) as run:
        seconds = [timed(lambda n=n: str(run.show(prompt_name(n)))) for n in range(SHOWN)]
    return {"seconds": median(seconds[1:])}


def searches(lake: Path, prompts: int) -> dict[str, float]:
    """Search critiques of this run in one open process."""
    from lpfloop.loop.lake.search.text_search import TextSearch, search

    words = sorted(set(text_source().split()), key=len)[-200:]
    draw = random.Random(1)
    texts = [" ".join(draw.sample(words, WORDS_SOUGHT)) for _ in range(SHOWN)]
    name = run_name(prompts)
    found = [timed(lambda t=t: search(lake, TextSearch(text=t, run=name))) for t in texts]
    return {"seconds": median(found[1:])}


def hashing(lake: Path, prompts: int) -> dict[str, float]:
    """Read in one process, alternately with hashing and with known hashes."""
    import lpfloop
    from lpfloop.stores.verified import forget

    name = run_name(prompts)
    with lpfloop.open(name, lake=lake) as run:
        asked: dict[str, Callable[[], object]] = {
            "sql": lambda: run.sql(AVERAGES),
            "show": lambda: str(run.show(prompt_name(prompts // 2))),
            "candidates": lambda: run.candidates().head(10).collect(),
        }
        return {
            f"{what}, {how}": seconds
            for what, read in asked.items()
            for how, seconds in side_by_side(read, forget).items()
        }


def write_whole(lake: Path, prompts: int) -> dict[str, float]:
    """Commit the iteration's rows other than samples and their judgements."""
    from lpfloop.stores.lake import run_folder

    seconds = timed(lambda: write_rest(run_folder(lake, run_name(prompts)), prompts, TOP_K))
    return {"seconds": seconds}


def side_by_side(read: Callable[[], object], forget: Callable[[], None]) -> dict[str, float]:
    """Return the medians of a read with hashing, with known hashes, and of the difference."""
    read()
    known, hashed = list[float](), list[float]()
    for _ in range(ROUNDS):
        known.append(timed(read))
        forget()
        hashed.append(timed(read))
    more = [b - a for a, b in zip(known, hashed, strict=True)]
    return {"known": median(known), "hashed": median(hashed), "more": median(more)}


STEPS: dict[str, Callable[[Path, int], dict[str, float]]] = {
    "write": write,
    "pairs": own_pairs,
    "pandas": pandas_pairs,
    "session": in_session,
    "searches": searches,
    "hashing": hashing,
    "whole": write_whole,
}
"""Measurements that run in separate processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Cost of a process: seconds passed, processor seconds, memory, and its output."""

    seconds: float
    processor: float
    mib: float
    output: str


def process(*command: str) -> Cost:
    """Run a command; return its wall time, its peak resident memory and its output."""
    with tempfile.TemporaryFile() as output:
        started = time.perf_counter()
        child = os.posix_spawn(
            sys.executable,
            [sys.executable, *command],
            os.environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, output.fileno(), 1)],
        )
        _, status, usage = os.wait4(child, 0)
        seconds = time.perf_counter() - started
        output.seek(0)
        text = output.read().decode()
    if status:
        sys.exit(f"failed: {' '.join(command)}")
    processor = usage.ru_utime + usage.ru_stime
    return Cost(seconds=seconds, processor=processor, mib=usage.ru_maxrss / 1024, output=text)


def lpfloop(lake: Path | str, *arguments: str) -> Cost:
    """Run a command of lpfloop on the lake."""
    return process("-P", "-m", "lpfloop", *arguments, "--lake", str(lake))


def step(name: str, lake: Path, prompts: int) -> tuple[dict[str, float], Cost]:
    """Run a measurement in a separate process."""
    cost = process(__file__, "--folder", str(lake), "--step", name, "--prompts", str(prompts))
    return json.loads(cost.output), cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A measurement; `each` is its cost per row if that should not grow."""

    what: str
    value: str
    goal: str
    met: bool | None
    each: float | None = None


def figures(lake: Path, prompts: int) -> Iterator[Figure]:
    """Write and query a run with this number of prompts."""
    name, rows = run_name(prompts), prompts * CANDIDATES
    yield from written(lake, prompts)
    yield from shown(lake, prompts)
    yield from paired(lake, prompts)
    averages = lpfloop(lake, "sql", AVERAGES, name, "--json")
    yield Figure(
        what="sql, ratings by task and aspect, cold",
        value=f"{averages.seconds:.2f} s, {averages.mib:,.0f} MiB",
        goal="2 s",
        met=averages.seconds < 2,
        each=averages.seconds / rows,
    )
    yield from verified(lake, prompts)
    yield from found(lake, prompts)
    yield from reported(lake, prompts)


def verified(lake: Path, prompts: int) -> Iterator[Figure]:
    """Measure the cost of hashing files at a process's first read."""
    said, _ = step("hashing", lake, prompts)
    for what, goal in (("sql", 1.0), ("show", 0.1), ("candidates", None)):
        known, hashed, more = (said[f"{what}, {how}"] for how in ("known", "hashed", "more"))
        yield Figure(
            what=f"{what}: hashing what is read",
            value=f"{more:+.2f} s ({known:.2f} to {hashed:.2f})",
            goal="-" if goal is None else f"{goal:.1f} s",
            met=None if goal is None else more < goal,
        )


def written(lake: Path, prompts: int) -> Iterator[Figure]:
    """Commit the rows."""
    said, cost = step("write", lake, prompts)
    yield Figure(
        what="commit",
        value=f"{said['rate']:,.0f} rows/s, {cost.mib:,.0f} MiB",
        goal="40,000 rows/s, 1 GiB",
        met=said["rate"] >= 40_000 and cost.mib < 1024,
        each=said["seconds"] / said["rows"],
    )
    yield Figure(
        what="seal and back up, once all is committed",
        value=f"{said['sealing']:.1f} s",
        goal="-",
        met=None,
    )
    yield Figure(
        what="commit, against a bare write_table",
        value=f"{said['ratio']:.2f} of its rows/s",
        goal="0.6",
        met=said["ratio"] >= 0.6,
    )
    yield Figure(
        what="commit, against to_table, write_table",
        value=f"{said['rows_ratio']:.2f} of its rows/s",
        goal="0.9",
        met=said["rows_ratio"] >= 0.9,
    )


def paired(lake: Path, prompts: int) -> Iterator[Figure]:
    """Pair the whole iteration."""
    options = ("--rule", "success_vs_failure", "--top-k", str(TOP_K), "--name", "paired")
    cost = lpfloop(lake, "rebuild-pairs", run_name(prompts), *options)
    yield Figure(
        what="pairs of the iteration",
        value=f"{cost.seconds:.1f} s, {cost.mib:,.0f} MiB",
        goal="60 s, 3 GiB",
        met=cost.seconds < 60 and cost.mib < 3 * 1024,
        each=cost.seconds / prompts,
    )
    if prompts <= PEER_PROMPTS:
        both = [(step("pairs", lake, prompts), step("pandas", lake, prompts)) for _ in range(3)]
        ratios = [peer["seconds"] / own["seconds"] for (own, _), (peer, _) in both]
        (_, its), (_, others) = both[0]
        yield Figure(
            what="pairs, against a pandas group-by",
            value=f"{median(ratios):.1f} times as fast ({its.mib:,.0f} MiB to {others.mib:,.0f})",
            goal="10 times",
            met=median(ratios) >= 10,
        )


def shown(lake: Path, prompts: int) -> Iterator[Figure]:
    """Show one prompt with all its candidates."""
    cold = [
        lpfloop(lake, "show", prompt_name(number), run_name(prompts)).seconds for number in range(5)
    ]
    yield Figure(
        what="show a prompt, cold process",
        value=f"{median(cold):.2f} s",
        goal="1.5 s",
        met=median(cold) < 1.5,
    )
    said, _ = step("session", lake, prompts)
    yield Figure(
        what="show a prompt, open session",
        value=f"{said['seconds'] * 1000:.0f} ms",
        goal="50 ms",
        met=said["seconds"] < 0.05,
    )


def found(lake: Path, prompts: int) -> Iterator[Figure]:
    """Index the texts, and search them."""
    indexed = lpfloop(lake, "search", "anything")
    yield Figure(
        what="index candidates, critiques, prompts",
        value=f"{indexed.seconds:.0f} s, {indexed.mib:,.0f} MiB",
        goal="10 min",
        met=indexed.seconds < 600,
        each=indexed.seconds / (prompts * CANDIDATES),
    )
    said, _ = step("searches", lake, prompts)
    yield Figure(
        what="full-text search of critiques",
        value=f"{said['seconds'] * 1000:.0f} ms",
        goal="200 ms",
        met=said["seconds"] < 0.2,
    )


def reported(lake: Path, prompts: int) -> Iterator[Figure]:
    """Add the rest of the iteration, and write its report."""
    step("whole", lake, prompts)
    page = lake.with_suffix(".html")
    cost = lpfloop(lake, "report", run_name(prompts), "--output", str(page))
    size = page.stat().st_size
    rows = prompts * (CANDIDATES + REFINEMENTS)
    yield Figure(
        what="report, cold process",
        value=f"{cost.seconds:.1f} s, {cost.mib:,.0f} MiB, {size / 1e6:.1f} MB",
        goal="120 s, 3 GiB, 5 MB",
        met=cost.seconds < 120 and cost.mib < 3 * 1024 and size < 5e6,
        each=cost.seconds / rows,
    )


def main() -> None:
    """Measure each size, and the growth of the cost per row."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--prompts", type=int, nargs="+", default=[8_000, 80_000])
    parser.add_argument("--step", choices=STEPS)
    options = parser.parse_args()
    if options.step:
        print(json.dumps(STEPS[options.step](options.folder, options.prompts[0])))
        return
    costs: dict[str, list[float]] = {}
    for prompts in options.prompts:
        lake = options.folder / f"{prompts}"
        print(f"\n{prompts * CANDIDATES:,} candidates, critiques and rewards")
        for figure in figures(lake, prompts):
            verdict = {True: "met", False: "MISSED", None: ""}[figure.met]
            line = f"{figure.what:<40}{figure.value:<32}{figure.goal:<22}{verdict}"
            print(line.rstrip(), flush=True)
            if figure.each is not None:
                costs.setdefault(figure.what, []).append(figure.each)
    print("\ncost per row in the largest run, divided by that in the smallest (goal: at most 1.2)")
    for what, each in costs.items():
        print(f"{what:<40}{each[-1] / each[0]:.2f}")


if __name__ == "__main__":
    main()
