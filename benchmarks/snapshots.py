"""Cost of a snapshot of a run's journal: seconds, bytes, and the slowdown of concurrent commits.

    python benchmarks/snapshots.py --mib 1 50 200                   # moto's S3 server, on loopback
    python benchmarks/snapshots.py --lake s3://bucket/prefix        # a bucket, by the environment

The script fills a journal of each size with committed units. `seconds` is one snapshot: read,
compressed, sent, checked, the old ones removed; `commits/s alone` are transactions of one thread,
and `beside` its transactions during continuous snapshots: more snapshots than in a run, which
spends at most a tenth of the time on them.
"""

import argparse
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

SMALL = 5_000
"""Units in each commit."""
MEASURED_S = 5.0


@contextmanager
def own_server() -> Generator[str]:
    """Start moto's server with an empty bucket; yield the address of a lake in it."""
    import pyarrow.fs as pafs

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-P", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.1)
        os.environ |= {
            "AWS_ACCESS_KEY_ID": "made-up",
            "AWS_SECRET_ACCESS_KEY": "made-up",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        }
        files = pafs.S3FileSystem(
            region="us-east-1",
            scheme="http",
            endpoint_override=f"127.0.0.1:{port}",
            allow_bucket_creation=True,
        )
        files.create_dir("benchmark")
        yield "s3://benchmark/lake"
    finally:
        server.kill()
        server.wait()


def fill(journal: object, mib: float) -> int:
    """Commit units until the journal has its size; return their number."""
    from lpfloop.stores.journal import Done, Journal
    from lpfloop.stores.verified import EncodedRows

    assert isinstance(journal, Journal)
    draws, number = random.Random(0), 0

    def name() -> str:
        return f"{draws.getrandbits(256):064x}"

    while _size(journal.folder) < mib * 2**20:
        keys = [name() for _ in range(SMALL if mib > 1 else SMALL // 50)]
        journal.plan(1, f"sample:{number}", name(), lambda keys=keys: keys)
        for first in range(0, len(keys), SMALL):
            journal.commit(
                [
                    Done(
                        unit=key,
                        parts={"candidates": EncodedRows(sha256=name(), rows=30, data=b"")},
                        telemetry={"tokens": draws.random() * 1e4, "seconds": draws.random()},
                    )
                    for key in keys[first : first + SMALL]
                ]
            )
        number += len(keys)
    return number


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("journal.sqlite*"))


def commits(journal: object, seconds: float) -> float:
    """Return the transactions a second of one thread."""
    from lpfloop.stores.journal import Journal

    assert isinstance(journal, Journal)
    began, count = time.perf_counter(), 0
    while time.perf_counter() < began + seconds:
        journal.record("note", count)
        count += 1
    return count / (time.perf_counter() - began)


def measure(place: str, mib: float) -> None:
    """Measure snapshots of a journal of a size, and print a line."""
    from lpfloop.stores.address import lake_folder
    from lpfloop.stores.journal import Journal
    from lpfloop.stores.lake import run_folder
    from lpfloop.stores.run_lease import last_snapshot

    folder = run_folder(lake_folder(place), f"run-{mib:g}-{random.getrandbits(32):08x}")
    with closing(Journal.create(folder, {"config": "{}"})) as journal:
        units = fill(journal, mib)
        assert journal.keeper is not None, f"{place} is not in a bucket"
        times, processor = list[float](), time.process_time()
        for _ in range(3):
            journal.record("note", None)
            began = time.perf_counter()
            journal.keeper.take_snapshot()
            times.append(time.perf_counter() - began)
        processor = (time.process_time() - processor) / len(times)
        last, whole = last_snapshot(folder), _size(folder) / 2**20
        alone = commits(journal, MEASURED_S)
        ending = threading.Event()

        def snapshots() -> None:
            while not ending.is_set():
                journal.keeper.take_snapshot()

        thread = threading.Thread(target=snapshots)
        thread.start()
        beside = commits(journal, MEASURED_S)
        ending.set()
        thread.join()
    sent = 0 if last is None else last.size / 2**20
    print(
        f"| {whole:.0f} | {units:,} | {sorted(times)[1]:.2f} | {processor:.2f} | {sent:.0f} "
        f"| {alone:,.0f} | {beside:,.0f} |",
        flush=True,
    )


def main() -> None:
    """Print a table, a line a size."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--mib", type=float, nargs="+", default=[1, 50, 200])
    parser.add_argument("--lake", help="s3://BUCKET/PREFIX; default: a server of its own")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as state:
        os.environ["LPFLOOP_STATE"] = state
        print("| MiB | units | seconds | of the processor | MiB sent | commits/s alone | beside |")
        print("| --- | --- | --- | --- | --- | --- | --- |")
        if wanted.lake:
            for mib in wanted.mib:
                measure(wanted.lake, mib)
            return
        with own_server() as place:
            for mib in wanted.mib:
                measure(place, mib)


if __name__ == "__main__":
    main()
