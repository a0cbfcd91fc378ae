#!/usr/bin/env bash
# engram_tool_test.sh ECPHORY: the commands about Engram tables from outside.
set -uo pipefail
tool=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failures=0

fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

# expect CODE PATTERN ARGUMENT...: exit code, and what one of the streams shows.
expect() {
  local code=$1 pattern=$2 found
  shift 2
  "$tool" engram "$@" >out 2>err </dev/null
  found=$?
  [ "$found" -eq "$code" ] || fail "exit code $found, expected $code: $*"
  cat out err >both
  grep -aqE -- "$pattern" both || fail "no '$pattern': $(head -c 300 both) ($*)"
  [ "$code" -eq 0 ] || [ "$(wc -l <err)" -eq 1 ] ||
    fail "not one line: $(cat err) ($*)"
}

valid_json() {
  command -v python3 >/dev/null || return 0
  python3 -m json.tool out >/dev/null || fail "no valid JSON: $*"
}

echo "== help and usage"
for command in info verify pack synth bench; do
  expect 0 "Usage: ecphory engram $command" $command --help
  grep -q 'Example' out || fail "$command --help has no example"
done
expect 2 'no command, expected info, verify, pack'
expect 2 "unknown command 'vreify'; did you mean 'verify'" vreify
expect 2 "unknown flag '--jsno'; did you mean '--json'" info --jsno
expect 2 'PATH is missing' info
expect 2 '-o is missing' synth
expect 2 '-o is missing' pack x.gguf
expect 2 "--codec: 'q3', expected" synth --codec q3
expect 2 'expected at most one of' bench x --sequential --text y
expect 3 'nope.gguf' verify nope.gguf

echo "== synth"
expect 0 'read back and compared' synth -o a.gguf --layout mini --rows 12000
expect 2 'a.gguf: exists' synth -o a.gguf --layout mini --rows 12000
expect 0 '"verified": true' \
  synth -o a.gguf --layout mini --rows 12000 --overwrite --json
valid_json synth
expect 0 'with holes' synth -o holes.gguf --layout mini --sparse

echo "== info"
expect 0 'reads a second' info a.gguf
expect 0 '"auto"' info a.gguf --json
valid_json info
expect 0 'O_DIRECT' info a.gguf --no-measure

echo "== verify"
expect 0 'no fault' verify a.gguf --write-manifest a.gguf.xxh
expect 0 'held against' verify a.gguf
expect 4 'holes' verify holes.gguf
cp a.gguf b.gguf
size=$(stat -c %s b.gguf)
printf '\377' | dd of=b.gguf bs=1 seek=$((size - 20000)) conv=notrunc 2>dd
expect 4 'faults in the tables' verify b.gguf --manifest a.gguf.xxh --json
valid_json verify
grep -q '"checksum differs"' out || fail "the changed byte: $(cat out)"
truncate -s $((size / 2)) b.gguf
expect 4 'b.gguf' verify b.gguf

echo "== pack, killed at random moments"
expect 0 'wrote whole.bin' pack a.gguf -o whole.bin
expect 2 'is an input' pack a.gguf -o a.gguf --overwrite
for try in 1 2 3 4 5 6; do
  "$tool" engram pack a.gguf -o killed.bin >out 2>err &
  pid=$!
  sleep "0.0$((try * 7 % 9))"
  kill -9 $pid 2>/dev/null
  wait $pid 2>/dev/null
  [ ! -e killed.bin ] || break
done
[ -e killed.bin ] || expect 0 'wrote killed.bin' pack a.gguf -o killed.bin
cmp whole.bin killed.bin || fail "a killed pack ended with other bytes"
[ ! -e killed.bin.partial ] && [ ! -e killed.bin.partial.journal ] ||
  fail "a finished pack left something behind"
expect 0 'no fault' verify whole.bin --config a.gguf

echo "== bench"
expect 0 'rows/s' bench a.gguf --depths 1,8 --seconds 0.02 --svg sweep.svg
head -c 4 sweep.svg | grep -q '<svg' || fail "no picture"
expect 0 '"conditions"' bench a.gguf --depths 4 --io pread --seconds 0.02 --json
valid_json bench
grep -q 'uniform random' out || fail "bench does not say that rows are random"
seq -s, 1 500 | sed 's/.*/[&]/' >ids.json
expect 0 'a text of 500 tokens' \
  bench a.gguf --tokens-file ids.json --depths 4 --io pread --seconds 0.02
printf '[7%s]' "$(printf ',7%.0s' $(seq 200))" >same.json
expect 2 'too little' bench a.gguf --tokens-file same.json --seconds 0.02
expect 2 'depth 0' bench a.gguf --depths 0
expect 2 "expected auto|'fast'" bench a.gguf --io fast

if [ "$failures" -gt 0 ]; then
  echo "$failures failures"
  exit 1
fi
echo "all passed"
