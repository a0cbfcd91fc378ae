#!/usr/bin/env bash
# skipped.sh DIRECTORY: counts and names the skipped tests of the GoogleTest
# results (XML) there, by the reason that they give.
set -euo pipefail
shopt -s nullglob
results=("$1"/*.xml)
[ "${#results[@]}" -gt 0 ] || exit 0
awk '
  function attribute(name,   text) {
    text = $0
    if (!sub(".* " name "=\"", "", text)) return ""
    sub("\".*", "", text)
    return text
  }
  /<testcase / { test = attribute("name"); suite = attribute("classname") }
  /<skipped message=/ {
    reason = attribute("message")
    gsub(/^[^ ]*:[0-9]+&#x0A;|&#x0A;$/, "", reason)
    gsub(/&#x0A;/, " ", reason)
    gsub(/&quot;/, "\"", reason); gsub(/&apos;/, "\047", reason)
    gsub(/&lt;/, "<", reason); gsub(/&gt;/, ">", reason)
    gsub(/&amp;/, "\\&", reason)
    if (!(reason in total)) order[++reasons] = reason
    ++total[reason]
    if (++count[reason, suite] == 1) suites[reason] = suites[reason] "\n" suite
  }
  END {
    for (r = 1; r <= reasons; ++r) {
      reason = order[r]
      printf "SKIPPED: %d tests: %s\n", total[reason], reason
      n = split(substr(suites[reason], 2), names, "\n")
      for (i = 1; i <= n; ++i) {
        printf "  %s (%d)\n", names[i], count[reason, names[i]]
      }
    }
  }' "${results[@]}"
