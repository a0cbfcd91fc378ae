#!/usr/bin/env bash
# Runs a Python test that needs PyTorch, or says loudly that it was skipped.
# usage: run_with_torch.sh PYTHON SCRIPT
set -eu
if ! "$1" -c 'import numpy, safetensors, tokenizers, torch' 2>/dev/null; then
  echo "SKIPPED: $1 has no PyTorch with numpy, safetensors and tokenizers;"
  echo "SKIPPED: ECPHORY_TEST_TORCH=1 ./test installs them."
  exit 77
fi
exec "$1" "$2"
