#!/usr/bin/env bash
# Runs the GPU tests on a machine with its own torch, which reaches no package registry.
#
#   tests/gpu/run.sh [WHEELS] [pytest arguments]
#
# WHEELS is the folder with the carried packages, .whl by default; docs/how-to/gpu-machine.md says which they are.
# All tests take about 30 minutes on an H100: where a command may take only ten, start it with setsid and read its log.
# Leave the device to it: other programs' work shows in its timings.
set -euo pipefail

cd "$(dirname "$0")/../.."
wheels=${1:-.whl}
shift || true
chosen=$(printf '%q ' --durations=0 -p no:cacheprovider "$@")
exec tests/gpu/uninstalled.sh "$wheels" make test-gpu PYTHON=python3 PYTEST="$chosen"
