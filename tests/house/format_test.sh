#!/usr/bin/env bash
# Every C++ file is as clang-format 14 leaves it (other versions differ).
set -euo pipefail

formatter=$(command -v clang-format-14 || true)
if [ -z "$formatter" ]; then
  echo "SKIPPED: clang-format-14 is not installed"
  exit 77
fi
find . -path ./build -prune -o \( -name '*.h' -o -name '*.c' -o -name '*.cc' \
  -o -name '*.cu' -o -name '*.cuh' \) -print0 |
  xargs -0 "$formatter" --dry-run -Werror
echo "every file is formatted"
