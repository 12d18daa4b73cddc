#!/usr/bin/env bash
# Runs a command with pt2hub's dependencies from carried wheels, on a machine with its own torch and no package registry.
#
#   tests/gpu/uninstalled.sh WHEELS COMMAND...
#
# WHEELS is the folder with the carried packages; docs/how-to/gpu-machine.md says which they are.
set -euo pipefail

wheels=$1
shift
carried=$(mktemp -d)/carried
python3 -m pip install --quiet --no-index --no-deps --no-compile --no-cache-dir --target "$carried" "$wheels"/*.whl

export PYTHONPATH=$carried${PYTHONPATH:+:$PYTHONPATH}
# Some images preset a compiler that links the C++ library statically: packages built with it crash when loaded.
export CXX=/usr/bin/g++ CUDAHOSTCXX=/usr/bin/g++
export PYTHONUNBUFFERED=1
exec "$@"
