"""The gain from replicas of a model, and the cost of sharing its work among them.

Slices a second of the tiny policy, drawn by transformers on one thread: by a bare worker, by a
pool of one (the cost of sharing), by a pool of two (the gain from a second replica, given the
cores), and with --ray by a worker in the Ray cluster of this machine. The sides take turns on the
same slices; loading does not count. All must draw the same texts.

With --sleep-ms scripted workers answer after a fixed time each, without using a core, so that the
machine does not limit the second replica.

    python benchmarks/replicas.py --rounds 5
    python benchmarks/replicas.py --rounds 5 --sleep-ms 2
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

from lpfloop.configs.schema import EngineConfig
from lpfloop.policies.engines.engine import Batch, BatchResult, Engine, Request, Sampling
from lpfloop.policies.workers.hosted_model import HostedModel
from lpfloop.policies.workers.model_process import child_processes
from lpfloop.policies.workers.places import Placement
from lpfloop.policies.workers.replicas import Replicas
from lpfloop.policies.workers.work import Opening
from lpfloop.stores.keys import derive_seed
from lpfloop.stores.records import Message

POLICY = Path(__file__).parent.parent / "loop" / "tiny" / "models" / "policy"
SIDES = ("bare worker", "pool of one", "pool of two")
BY_RAY = "bare by Ray"
SAMPLING = Sampling(temperature=1.0, top_p=1.0, max_tokens=48)
HERE = Placement(place="local")
SLEEPY = "import time\ndef answer(request, sampling):\n    time.sleep({seconds})\n    return 'so'\n"


def slices(count: int, size: int) -> Iterator[Batch]:
    """Yield questions of different lengths, `size` answers to each."""
    for number in range(count):
        text = f"Tom has {number} apples. " * (1 + number % 5) + "How many has he?"
        requests = (
            Request(
                request_id=f"{number}/{i}",
                messages=(Message(role="user", content=text),),
                seed=derive_seed(0, str(number), i),
            )
            for i in range(size)
        )
        yield Batch(key=str(number), requests=tuple(requests), sampling=SAMPLING)


def drawn(engine: Engine, options: argparse.Namespace) -> tuple[float, dict[str, BatchResult]]:
    """Return slices a second, and the results."""
    started = time.perf_counter()
    results = {r.key: r for r in engine.generate(slices(options.slices, options.size))}
    return options.slices / (time.perf_counter() - started), results


def opener(options: argparse.Namespace, folder: Path) -> Callable[..., HostedModel]:
    """Return a function that opens a worker, here or in Ray: a model's, or a sleeping one."""
    config = EngineConfig(kind="transformers", cpu_threads=1)
    if options.sleep_ms:
        (folder / "sleepy.py").write_text(SLEEPY.format(seconds=options.sleep_ms / 1000))
        os.environ["PYTHONPATH"] = f"{folder}:{os.environ.get('PYTHONPATH', '')}"
        config = EngineConfig(kind="scripted", script="sleepy:answer")
    opening = Opening(kind=config.kind, model=str(POLICY), config=config)

    def open_worker(number: int, placement: Placement = HERE, *_: object) -> HostedModel:
        start = child_processes(log=folder / f"{number}.log")
        if placement.place == "ray":
            from lpfloop.policies.workers.ray_cluster import ray_request
            from lpfloop.policies.workers.ray_process import ray_processes

            start = ray_processes(ray_request(config))
        return HostedModel(opening, start)

    return open_worker


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--slices", type=int, default=40)
    parser.add_argument("--size", type=int, default=32, help="requests in a slice")
    parser.add_argument("--sleep-ms", type=float, default=0.0, help="time of a scripted answer")
    parser.add_argument("--ray", action="store_true", help="also a worker in a Ray cluster")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        opened = opener(options, Path(folder))
        pools = (
            Replicas(opened, str(POLICY), EngineConfig(), lambda _, count=count: [HERE] * count)
            for count in (1, 2)
        )
        engines: dict[str, Engine] = dict(zip(SIDES, (opened(0), *pools), strict=True))
        if options.ray:
            engines[BY_RAY] = opened(0, Placement(place="ray"))
        for engine in engines.values():
            drawn(engine, options)
        rounds: list[dict[str, float]] = []
        for _ in range(options.rounds):
            found = {side: drawn(engine, options) for side, engine in engines.items()}
            if len({str(sorted(results.items())) for _, results in found.values()}) != 1:
                raise SystemExit("the sides drew different texts")
            rounds.append({side: rate for side, (rate, _) in found.items()})
        for engine in engines.values():
            engine.close()
    print(f"{'side':<14}{'slices/s':>10}{'of bare':>10}")
    for side in engines:
        ratio = median(r[side] / r[SIDES[0]] for r in rounds)
        print(f"{side:<14}{median(r[side] for r in rounds):>10.1f}{ratio:>10.2f}")


if __name__ == "__main__":
    main()
