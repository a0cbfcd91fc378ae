#!/usr/bin/env bash
# What ./test says at its end of tests that were skipped. Runs in the
# repository's root.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat >"$work/a_test.xml" <<'XML'
<testsuites>
    <testcase name="Runs/cuda" status="run" result="skipped" classname="Devices/OpTest">
      <skipped message="a.cc:3&#x0A;no &quot;GPU&quot;&#x0A;"><![CDATA[a.cc:3
no "GPU"
]]></skipped>
    </testcase>
    <testcase name="Runs/cpu" status="run" result="completed" classname="Devices/OpTest" />
    <testcase name="Stops/cuda" status="run" result="skipped" classname="Devices/OpTest">
      <skipped message="a.cc:3&#x0A;no &quot;GPU&quot;&#x0A;"></skipped>
    </testcase>
XML
cat >"$work/b_test.xml" <<'XML'
    <testcase name="One" status="run" result="skipped" classname="Memory">
      <skipped message="b.cc:9&#x0A;no &lt;count&gt;&#x0A;"></skipped>
    </testcase>
    <testcase name="Two" status="run" result="skipped" classname="Other">
      <skipped message="c.cc:19&#x0A;no &quot;GPU&quot;&#x0A;"></skipped>
    </testcase>
XML
expected='SKIPPED: 3 tests: no "GPU"
  Devices/OpTest (2)
  Other (1)
SKIPPED: 1 tests: no <count>
  Memory (1)'
found=$(cmake/skipped.sh "$work")
if [ "$found" != "$expected" ]; then
  echo "found: $found"
  exit 1
fi
mkdir "$work/none"
[ -z "$(cmake/skipped.sh "$work/none")" ]
echo "skipped tests are counted and named"
