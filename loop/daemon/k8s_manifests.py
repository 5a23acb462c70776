# pyright: basic
"""Manifests for Kubernetes: a job for the loop, a job for its workers, and what they share.

A loop that stopped cleanly before its end, or whose pod was evicted, is started again without
limit; a fault counts, and what another try cannot change fails the job at once. Workers wait for
the loop while it is away, for a day at most, and end with the run, as the loop tells them.
"""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from ...configs.schema import ConfigError
from .launching import GRACE_S, Allocation, LaunchedRun

Manifest = dict[str, Any]

PROGRAM = ("lpfloop",)
STATE = "/var/lib/lpfloop"
"""Where the pods have their local state: journals of a lake in a bucket, copies of weights."""
SECRET = "/etc/lpfloop"  # noqa: S105 -- a folder
TOKEN_KEY, TOKEN = "LPFLOOP_JOIN_TOKEN", "join-token"
"""The key of the secret by which workers join, and the file of it in the loop's pod."""
TERMINATED = 143
TRIES = 6
OBJECT_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?")
MEMORY = re.compile(r"([1-9][0-9]*)([KMGT]?)")
STORAGE = re.compile(r"[1-9][0-9]*[KMGT]i?")
IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/@-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSettings:
    """What the pods are made of.

    `claim` is the volume claim of a lake in a folder, at `lake` in every pod; without it the lake
    is in a bucket, and the loop gets a volume of `state` for its journal. `resumable` is the exit
    code of a loop that stopped cleanly before its end, `final` are those that another try gives
    again.
    """

    image: str
    claim: str | None
    lake: str
    state: str
    workers: int
    port: int
    resumable: int
    final: Sequence[int]


def manifests(run: LaunchedRun, allocation: Allocation, pods: PodSettings) -> str:
    """Return the manifests, as YAML for `kubectl apply`.

    Raises:
        ConfigError: if a name is not one of Kubernetes.
    """
    if not OBJECT_NAME.fullmatch(run.name):
        raise ConfigError(
            f"--run {run.name}: names in Kubernetes are of a-z, 0-9 and dashes inside, 42 at most"
        )
    if not IMAGE.fullmatch(pods.image):
        raise ConfigError(f"--image {pods.image!r}: not the name of an image")
    if not STORAGE.fullmatch(pods.state):
        raise ConfigError(f"--storage {pods.state}: write an amount such as 100Gi")
    found = [
        *([_state_claim(run, pods)] if pods.claim is None else []),
        *([_service(run, pods)] if pods.workers else []),
        _loop_job(run, allocation, pods),
        *([_worker_job(run, allocation, pods)] if pods.workers else []),
    ]
    said = "\n".join(f"# {line}".rstrip() for line in _told(run, pods))
    return f"{said}\n{yaml.dump_all(found, Dumper=_Blocks, sort_keys=False, width=100)}"


def secret_name(run: LaunchedRun) -> str:
    """Return the secret that the pods of a run read."""
    return _named(run, "secret")


def _told(run: LaunchedRun, pods: PodSettings) -> list[str]:
    """Return what is to be made before."""
    keys = "" if pods.claim else " --from-literal=AWS_ACCESS_KEY_ID=... (and what else AWS_...)"
    return [
        "Before: the secret, which becomes the pods' environment (LPFLOOP_API_KEY may be in it).",
        f"  kubectl create secret generic {secret_name(run)} \\",
        f"    --from-literal={TOKEN_KEY}=$(openssl rand -hex 32){keys}",
        "To end all of it: kubectl delete job,service -l lpfloop/run=" + run.name,
    ]


def _named(run: LaunchedRun, what: str) -> str:
    return f"lpfloop-{run.name}-{what}"


def _meta(run: LaunchedRun, what: str) -> Manifest:
    return {"name": _named(run, what), "labels": _labels(run, what)}


def _labels(run: LaunchedRun, what: str) -> Manifest:
    return {"app.kubernetes.io/name": "lpfloop", "lpfloop/run": run.name, "lpfloop/part": what}


def _state_claim(run: LaunchedRun, pods: PodSettings) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": _meta(run, "state"),
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": pods.state}},
        },
    }


def _service(run: LaunchedRun, pods: PodSettings) -> Manifest:
    """Give the loop's pod, whichever it is, the name by which workers find it."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _meta(run, "head"),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": _labels(run, "loop"),
            "ports": [{"name": "join", "port": pods.port}],
        },
    }


def _loop_job(run: LaunchedRun, allocation: Allocation, pods: PodSettings) -> Manifest:
    container = _container("loop", run.script(PROGRAM), allocation, run, pods)
    state = {"persistentVolumeClaim": {"claimName": _named(run, "state")}}
    pod = _pod(container, pods, state if pods.claim is None else {"emptyDir": {}})
    if pods.workers:
        container["ports"] = [{"name": "join", "containerPort": pods.port}]
        container["volumeMounts"].append({"name": "token", "mountPath": SECRET, "readOnly": True})
        items = [{"key": TOKEN_KEY, "path": TOKEN}]
        secret = {"secretName": secret_name(run), "items": items}
        pod["volumes"].append({"name": "token", "secret": secret})
    rules = [
        _on_codes("loop", "FailJob", pods.final),
        _on_codes("loop", "Ignore", [pods.resumable]),
    ]
    return _job(run, "loop", pod, rules, count=1)


def _worker_job(run: LaunchedRun, allocation: Allocation, pods: PodSettings) -> Manifest:
    """Return the job of the workers; one that is told to go has not finished."""
    join = f"{_named(run, 'head')}:{pods.port}"
    words = (*PROGRAM, "worker", "--join", join, "--one-run")
    # What is told before the worker is started, or as it is, is heard as well.
    script = (
        f"trap 'kill -TERM $! 2>/dev/null; wait $!; exit {TERMINATED}' TERM\n"
        f"{shlex.join(words)} &\n"
        "wait $!\n"
    )
    container = _container("worker", script, allocation, run, pods)
    pod = _pod(container, pods, {"emptyDir": {}})
    rules = [_on_codes("worker", "Ignore", [TERMINATED])]
    return _job(run, "worker", pod, rules, count=pods.workers)


def _job(
    run: LaunchedRun, what: str, pod: Manifest, rules: Sequence[Manifest], *, count: int
) -> Manifest:
    evicted = {
        "action": "Ignore",
        "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _meta(run, what),
        "spec": {
            "completions": count,
            "parallelism": count,
            "backoffLimit": TRIES * count,
            # The next pod begins when the one before has ended: a journal has one writer.
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {"rules": [evicted, *rules]},
            "template": {"metadata": {"labels": _labels(run, what)}, "spec": pod},
        },
    }


def _on_codes(container: str, action: str, codes: Sequence[int]) -> Manifest:
    found = {"containerName": container, "operator": "In", "values": sorted(map(int, codes))}
    return {"action": action, "onExitCodes": found}


def _container(
    name: str, script: str, allocation: Allocation, run: LaunchedRun, pods: PodSettings
) -> Manifest:
    wanted: Manifest = {"cpu": str(allocation.cpus), "memory": _quantity(allocation.mem)}
    limits = {"nvidia.com/gpu": allocation.gpus} if allocation.gpus else {}
    mounts = [
        {"name": "state", "mountPath": STATE},
        {"name": "memory", "mountPath": "/dev/shm"},  # noqa: S108 -- what NCCL shares
        *([{"name": "lake", "mountPath": pods.lake}] if pods.claim else []),
    ]
    return {
        "name": name,
        "image": pods.image,
        "command": ["/bin/sh", "-c", script],
        "env": [{"name": "LPFLOOP_STATE", "value": STATE}],
        "envFrom": [{"secretRef": {"name": secret_name(run), "optional": not pods.workers}}],
        "resources": {"requests": wanted, **({"limits": limits} if limits else {})},
        "volumeMounts": mounts,
    }


def _pod(container: Manifest, pods: PodSettings, state: Manifest) -> Manifest:
    lake = {"name": "lake", "persistentVolumeClaim": {"claimName": pods.claim}}
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE_S,
        "containers": [container],
        "volumes": [
            {"name": "state", **state},
            {"name": "memory", "emptyDir": {"medium": "Memory"}},
            *([lake] if pods.claim else []),
        ],
    }


def _quantity(memory: str) -> str:
    """Return an amount in Slurm's notation as Kubernetes writes it: 64G are 64Gi there."""
    match = MEMORY.fullmatch(memory)
    if match is None:
        raise ConfigError(f"--mem {memory}: write an amount such as 64G")
    return f"{match[1]}{match[2] or 'M'}i"


class _Blocks(yaml.SafeDumper):
    """Writes texts of several lines as they are."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Blocks.add_representer(str, _text)
