#!/usr/bin/env bash
# Check everything of lpfloop that a card can change, in one call of at most 8 minutes; no network.
#
#   benchmarks/gpu_check.sh FOLDER [OPTIONS]      # OPTIONS are those of gpu_check.py
#
# Variables: BUNDLE, the folder that gpu_bundle.sh made; WEIGHTS, that of SmolLM2's parts; STATE, where
# both are unpacked, and parts are kept for a later call; PY, the Python that has torch.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PY=${PY:-python3}
BUNDLE=${BUNDLE:-build/gpu-bundle}
WEIGHTS=${WEIGHTS:-build/gpu-bundle-weights}
STATE=${STATE:-/tmp/lpfloop-gpu}
SITE=$STATE/site
export HF_HUB_OFFLINE=1 HF_HUB_DISABLE_TELEMETRY=1 TOKENIZERS_PARALLELISM=false PYTHONUNBUFFERED=1

mkdir -p "$STATE"
if [ ! -e "$SITE/lpfloop" ]; then
  if ! compgen -G "$BUNDLE/*.whl" >/dev/null; then
    echo "there are no wheels in $BUNDLE: make them by benchmarks/gpu_bundle.sh where there is a network" >&2
    exit 2
  fi
  "$PY" -m pip install --quiet --no-index --no-deps --no-compile --target "$SITE" "$BUNDLE"/*.whl
  # The checkout is the package: a link gives it its name, whatever the folder is called.
  ln -s "$PWD" "$SITE/lpfloop"
fi
export PYTHONPATH=$SITE

if compgen -G "$WEIGHTS/smollm2.part*" >/dev/null; then cp "$WEIGHTS"/* "$STATE"; fi
if [ -e "$STATE/smollm2.part1" ] && [ -e "$STATE/smollm2.part2" ] && [ ! -e "$STATE/smollm2" ]; then
  "$PY" -m pip install --quiet --no-index --no-deps --no-compile --target "$SITE" "$STATE"/gguf-*.whl
  cat "$STATE"/smollm2.part[12] >"$STATE/smollm2.zip"
  "$PY" benchmarks/gpu_checks.py --make-smollm2 "$STATE/smollm2.zip" "$STATE/smollm2"
fi
if [ -e "$STATE/smollm2" ]; then export SMOLLM2=$STATE/smollm2; fi

exec "$PY" benchmarks/gpu_check.py "$@"
