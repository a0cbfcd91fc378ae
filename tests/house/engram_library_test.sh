#!/usr/bin/env bash
# The programs in docs/engram-library.md are those of examples/, which the
# install test and engram_cpp_test build and run. Runs in the repository's root.
set -euo pipefail
doc=docs/engram-library.md
status=0

compare() {  # LANGUAGE FILE
  diff <(sed -n "/^\`\`\`$1\$/,/^\`\`\`\$/{/^\`\`\`/d;p}" "$doc") \
    <(sed -n '/^#include/,$p' "$2") || {
    echo "$doc and $2 differ (above)"
    status=1
  }
}

compare c examples/engram_c/main.c
compare cpp examples/engram_cpp/main.cc
[ "$status" -ne 0 ] || echo "$doc shows the examples"
exit "$status"
