"""The gain from a second replica of a model.

Slices a second of the tiny policy, drawn by transformers on one thread: by one replica, by two (the
gain, given the cores), and with --ray by one in the Ray cluster of this machine. The sides take
turns on the same slices; loading does not count. All must draw the same texts.

With --sleep-ms scripted workers answer after a fixed time each, without using a core, so that the
machine does not limit the second replica.

    python benchmarks/replicas.py --rounds 5
    python benchmarks/replicas.py --rounds 5 --sleep-ms 2
"""

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

from lpfloop.configs.schema import EngineConfig
from lpfloop.policies.engines.engine import Batch, BatchResult, Engine, Request, Sampling
from lpfloop.policies.workers.hosted_model import HostedModel
from lpfloop.policies.workers.model_process import ChildProcess, ModelProcess, Opening
from lpfloop.policies.workers.places import Placement
from lpfloop.stores.keys import derive_seed
from lpfloop.stores.records import Message

POLICY = Path(__file__).parent.parent / "loop" / "tiny" / "models" / "policy"
SIDES = ("one replica", "two replicas")
BY_RAY = "one in Ray"
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


def opener(options: argparse.Namespace, folder: Path) -> Callable[..., Engine]:
    """Return a function that opens replicas, here or in Ray: of a model, or sleeping ones."""
    config = EngineConfig(kind="transformers", cpu_threads=1)
    if options.sleep_ms:
        (folder / "sleepy.py").write_text(SLEEPY.format(seconds=options.sleep_ms / 1000))
        os.environ["PYTHONPATH"] = f"{folder}:{os.environ.get('PYTHONPATH', '')}"
        config = EngineConfig(kind="scripted", script="sleepy:answer")
    opening = Opening(kind=config.kind, model=str(POLICY), config=config)

    def start(
        number: int, placement: Placement, _model: str, _: EngineConfig, wake: threading.Event
    ) -> ModelProcess:
        if placement.place == "ray":
            from lpfloop.policies.workers.ray_cluster import ray_request
            from lpfloop.policies.workers.ray_process import RayProcess

            return RayProcess(opening, wake, ray_request(config))
        return ChildProcess(opening, wake, log=folder / f"{number}.log")

    def opened(*placements: Placement) -> Engine:
        return HostedModel(start, str(POLICY), config, lambda _: placements)

    return opened


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
        engines = dict(zip(SIDES, (opened(HERE), opened(HERE, HERE)), strict=True))
        if options.ray:
            engines[BY_RAY] = opened(Placement(place="ray"))
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
    print(f"{'side':<14}{'slices/s':>10}{'of one':>10}")
    for side in engines:
        ratio = median(r[side] / r[SIDES[0]] for r in rounds)
        print(f"{side:<14}{median(r[side] for r in rounds):>10.1f}{ratio:>10.2f}")


if __name__ == "__main__":
    main()
