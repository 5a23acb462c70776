# pyright: basic
"""The synthetic lake of `lake.py` in a bucket: each command's requests, compared with a folder.

    python benchmarks/lake_in_bucket.py --folder /tmp/lake --endpoint http://127.0.0.1:8333
    python benchmarks/lake_in_bucket.py --folder /tmp/lake --prompts 800 --latency 0.03

The keys come from the environment. Without `--endpoint`, the script starts moto's server, which is
slow and for a trial only. It writes the rows once into a folder, and uploads them unchanged. Each
command then runs in a separate process, in the folder, in the bucket, and in the bucket with a
delay of `--latency` seconds for every request.

Seconds depend on this machine and this server; processor seconds are in brackets. Figures that any
store would show follow: requests, megabytes fetched, and `rounds`: requests that started after all
earlier answers had arrived. Latency adds up to a command's time once a round.
"""

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from far_store import FarStore, Passed, far_store
from lake import AVERAGES, Cost, lpfloop, process, step
from synthetic import CANDIDATES, prompt_name, run_name

BUCKET = "synthetic-lakes"
UPLOADS = 8
START_S = 30
LOCAL = ("files", "derived")
"""The folders of a run that lpfloop does not copy to its local side."""
MEMORY = 1024
"""The goal: maximal MiB of a command."""
TRIAL_KEYS = {
    "AWS_ACCESS_KEY_ID": "made-up-id",
    "AWS_SECRET_ACCESS_KEY": "made-up-secret-key",
    "AWS_REGION": "us-east-1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A command; its goal is at most so many rounds for any size of run."""

    name: str
    arguments: tuple[str, ...]
    rounds: int | None = None
    once: bool = False


def commands(run: str, candidate: str, output: Path) -> list[Asked]:
    """Return the measured commands, in order."""

    def sql(name: str, query: str, rounds: int) -> Asked:
        return Asked(name=name, arguments=("sql", query, run, "--json"), rounds=rounds)

    def export(table: str) -> tuple[str, ...]:
        return ("export", run, table, "--as", "jsonl", "--output", str(output), "--force")

    of_run = ("--run", run)
    one = f"select length(text) from candidates where candidate_id = '{candidate}'"  # noqa: S608
    joined = "select finish_reason, avg(score) from candidates join rewards using (candidate_id)"
    return [
        Asked(name="status", arguments=("status", run), rounds=50),
        Asked(name="show PROMPT", arguments=("show", prompt_name(3), *of_run), rounds=50),
        Asked(name="show CANDIDATE", arguments=("show", candidate, *of_run), rounds=100),
        Asked(name="lineage CANDIDATE", arguments=("lineage", candidate, *of_run), rounds=100),
        sql("sql: count", "select count(*) from candidates", 100),
        sql("sql: ratings by task, aspect", AVERAGES, 200),
        sql("sql: one candidate by its id", one, 100),
        sql("sql: join with rewards", f"{joined} group by all", 200),
        Asked(name="candidates --limit 20", arguments=("candidates", run, "--limit", "20")),
        sql("sql: failures", "select * from failures limit 20", 200),
        Asked(name="lake verify", arguments=("lake", "verify", run), rounds=20),
        Asked(name="lake verify --deep", arguments=("lake", "verify", run, "--deep"), rounds=200),
        Asked(name="lake gc", arguments=("lake", "gc", run), rounds=50),
        Asked(name="export rewards", arguments=export("rewards"), once=True),
        Asked(name="export candidates", arguments=export("candidates"), once=True),
        Asked(name="lake digest", arguments=("lake", "digest", run), once=True),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """Cost of a command; `passed` is its traffic with the bucket."""

    seconds: float
    processor: float
    mib: float
    passed: Passed


def taken(store: FarStore, address: str, asked: Asked, times: int) -> Taken:
    """Run a command so often; return the medians, and the traffic of the last time."""
    costs = list[Cost]()
    for _ in range(1 if asked.once else times):
        store.passed = Passed()
        costs.append(lpfloop(address, *asked.arguments))
    return Taken(
        seconds=median(cost.seconds for cost in costs),
        processor=median(cost.processor for cost in costs),
        mib=max(cost.mib for cost in costs),
        passed=store.passed,
    )


def uploaded(lake: Path, prompts: int) -> str:
    """Upload a lake into the bucket, except local files; return its address."""
    import pyarrow.fs as pafs

    from lpfloop.stores.address import lake_folder
    from lpfloop.stores.bucket import Bucket

    prefix = f"{prompts}-{time.time_ns()}"
    address, run = f"s3://{BUCKET}/{prefix}", Path("runs", run_name(prompts))
    endpoint = os.environ["AWS_ENDPOINT_URL"]
    pafs.S3FileSystem(endpoint_override=endpoint, allow_bucket_creation=True).create_dir(BUCKET)
    bucket = Bucket(address)

    def upload(path: Path) -> None:
        bucket.put(path.relative_to(lake).as_posix(), path.read_bytes())

    with ThreadPoolExecutor(UPLOADS) as pool:
        list(pool.map(upload, (lake / run).rglob("*.parquet")))
    ignore = shutil.ignore_patterns(*LOCAL)
    shutil.copytree(lake / run, lake_folder(address) / run, ignore=ignore)
    return address


def prepared(lake: Path, prompts: int) -> dict[str, str]:
    """Upload a lake twice; return both addresses, and the id of a candidate."""
    from lpfloop.loop.lake.query.runs import open_run

    run = open_run(lake, run_name(prompts))
    try:
        first = run.scan("candidates").filter(prompt_id=prompt_name(3)).select("candidate_id")
        candidate = first.head(1).collect().item()
    finally:
        run.close()
    near, far = uploaded(lake, prompts), uploaded(lake, prompts)
    return {"candidate": candidate, "near": near, "far": far}


def lines(lake: Path, prompts: int, endpoint: str, options: argparse.Namespace) -> Iterator[str]:
    """Measure the commands in turn; yield a line for each."""
    os.environ["AWS_ENDPOINT_URL"] = endpoint
    arguments = ("--folder", str(options.folder), "--prompts", str(prompts), "--prepare")
    # This process stays small: a child's peak memory includes its parent's.
    ready = json.loads(process(__file__, *arguments).output)
    with far_store(endpoint) as store:
        os.environ["AWS_ENDPOINT_URL"] = store.endpoint
        output = lake.with_suffix(".export")
        for asked in commands(run_name(prompts), ready["candidate"], output):
            if options.only and asked.name not in options.only:
                continue
            store.latency_s = 0.0
            here = taken(store, str(lake), asked, options.times)
            near = taken(store, ready["near"], asked, options.times)
            store.latency_s = options.latency
            far = taken(store, ready["far"], asked, options.times)
            yield line(asked, here, near, far)


def line(asked: Asked, here: Taken, near: Taken, far: Taken) -> str:
    """Return a row of the table."""
    passed = far.passed
    met = far.mib <= MEMORY and (asked.rounds is None or passed.rounds <= asked.rounds)
    cells = (
        asked.name,
        cell(here),
        cell(near),
        cell(far),
        f"{sum(passed.requests.values()):,}",
        f"{passed.rounds:,}",
        f"{passed.down / 1e6:,.1f}",
        "" if met else "MISSED",
    )
    return "| " + " | ".join(cells) + " |"


def cell(cost: Taken) -> str:
    """Return the cost of a command in one place."""
    return f"{cost.seconds:.1f} s ({cost.processor:.1f}), {cost.mib:,.0f} MiB"


@contextmanager
def trial_server() -> Generator[str]:
    """Start moto's server; yield its address."""
    os.environ |= TRIAL_KEYS
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments = ("-m", "moto.server", "-H", "127.0.0.1", "-p", str(port))
    null = subprocess.DEVNULL
    server = subprocess.Popen([sys.executable, *arguments], stdout=null, stderr=null)
    try:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def main() -> None:
    """Measure each size."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--endpoint", help="a server that speaks S3; default: moto's, for a trial")
    parser.add_argument("--prompts", type=int, nargs="+", default=[8_000, 80_000])
    parser.add_argument("--latency", type=float, default=0.03, help="seconds that a request takes")
    parser.add_argument("--times", type=int, default=3, help="medians of so many")
    parser.add_argument("--only", nargs="+", help="only these commands")
    parser.add_argument("--prepare", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.prepare:
        (prompts,) = options.prompts
        print(json.dumps(prepared(options.folder / f"{prompts}", prompts)))
        return
    with ExitStack() as stack:
        endpoint = options.endpoint or stack.enter_context(trial_server())
        os.environ["LPFLOOP_STATE"] = str(options.folder.absolute() / "local")
        for prompts in options.prompts:
            lake = options.folder / f"{prompts}"
            if not lake.exists():
                step("write", lake, prompts)
            rows = prompts * CANDIDATES
            print(f"\n{rows:,} candidates, critiques and rewards; goal: {MEMORY} MiB")
            print("| command | folder | bucket | far bucket | requests | rounds | MB | |")
            print("| --- | --- | --- | --- | --- | --- | --- | --- |")
            for told in lines(lake, prompts, endpoint, options):
                print(told)
                sys.stdout.flush()


if __name__ == "__main__":
    main()
