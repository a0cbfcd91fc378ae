#!/usr/bin/env bash
# The C++ program in README.md is examples/generate.cc, which the install test
# builds and runs.
set -euo pipefail
diff <(sed -n '/^```cpp$/,/^```$/{/^```/d;p}' README.md) \
  <(sed '1,/^$/{/^\/\//d}' examples/generate.cc | sed '/./,$!d') ||
  {
    echo "README.md and examples/generate.cc differ (above)"
    exit 1
  }
echo "README.md shows examples/generate.cc"
