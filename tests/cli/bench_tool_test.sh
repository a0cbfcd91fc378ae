#!/usr/bin/env bash
# ecphory bench from the outside: flags, errors, the keys of its JSON, Ctrl-C.
# bench_tool_test.sh TOOL REPOSITORY
set -uo pipefail

tool=$1
model=$2/tests/golden/v41/A
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failures=0

fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

# expect CODE PATTERN ARGUMENT...: exit code, and a line on either stream.
expect() {
  local code=$1 pattern=$2 found
  shift 2
  "$tool" bench "$@" >out 2>err </dev/null
  found=$?
  [ "$found" -eq "$code" ] || fail "exit code $found, expected $code: $*"
  grep -qE -- "$pattern" out err ||
    fail "no '$pattern' from bench $*: $(cat out err)"
}

echo "== usage errors are one line each"
expect 2 'nothing to measure, expected --ops, -m or both'
expect 2 "no figure's name holds 'nosuch'" --ops --filter nosuch
expect 2 'filter chooses operators, expected --ops or --list' \
  -m "$model" --filter matvec
for flag in --context=4 --sequences=4 --prompt=4 --activations=int8 \
  --weights=copy --engram-place=host --engram-io=mmap --engram-cache=0 \
  --engram-io-threads=4 --engram-depth=4; do
  expect 2 "${flag%=*} requires --model" --ops --quick "$flag"
done
for flag in --repetitions=5 --seconds=1; do
  expect 2 "${flag%=*} excludes --quick|--quick excludes ${flag%=*}" \
    --ops --quick "$flag"
done
expect 2 "--model: '', expected a name" --ops -m ''
[ "$(wc -l <err)" -eq 1 ] || fail "more than one line: $(cat err)"
expect 2 "--device: 'tpu', expected cpu" --ops --device tpu
expect 2 "--repetitions: '0', expected a whole number from 3" \
  --ops --repetitions 0
expect 2 "--seconds: '0', expected more than 0" --ops --seconds 0
expect 2 "--pages: 'big', expected huge\|small" --ops --pages big
expect 2 "--threads: '0', expected" --ops --threads 0
expect 2 'working set of 1048576 bytes, expected 268435456' \
  --ops --filter pool/awake --working-set 1M
expect 2 "--sizes: 'huge', expected mini\|released" --ops --sizes huge

expect 2 "--context: 'x', expected a whole number" -m "$model" --context 1,x
for list in 1,,2 ,1 1, , ''; do
  expect 2 "--context: '$list', expected values between commas" \
    -m "$model" "--context=$list"
done
expect 2 "--prompt: '0', expected a whole number from 1" -m "$model" --prompt 0
expect 3 'sgemm: /nosuch.so: ' --ops --filter pool/awake --sgemm /nosuch.so
expect 3 'nosuch.gguf' -m nosuch.gguf --quick
expect 2 "--activations: 'f16', expected bf16\|f32\|int8" \
  -m "$model" --activations f16

echo "== names"
expect 0 '^matvec/Q8_0/32768x1280$' --list
expect 0 '^pool/asleep$' --list --filter pool
grep -q matvec out && fail "--list does not filter"
expect 2 "no figure's name holds 'nosuch'" --list --filter nosuch

expect 0 '^matvec/F16/8192x288$' --list --sizes mini

expect 0 '"matvec/Q8_0/32768x1280"' --list --json
if command -v python3 >/dev/null; then
  python3 -c 'import json, sys
assert json.load(open(sys.argv[1]))["version"] == 2' out ||
    fail "--list --json is no JSON"
fi

echo "== a figure in words and as JSON"
# On a busy machine arithmetic can be what bounds it.
expect 0 'matvec/Q8_0/5120x1280 .* (read|fma) .* [0-9.]+ \([0-9.]+ \.\. [0-9.]+\)$' \
  --ops --quick --filter matvec/Q8_0/5120x1280 --threads 2
grep -qE '^  fma .*FLOP/s' out || fail "no yardstick: $(cat out)"
grep -q ', operators at released sizes$' out || fail "no sizes: $(cat out)"
"$tool" bench --ops --quick --filter /5120x1280 --json >out 2>err ||
  fail "--json: $(cat err)"
if command -v python3 >/dev/null; then
  python3 - out <<'PYTHON' || fail "the JSON is not as docs/bench.md says"
import json
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    report = json.load(file)
assert report["version"] == 2
conditions = {"date", "system", "cpu", "processors", "memory_bytes",
              "threads", "backend", "sizes", "pages", "working_set"}
assert conditions <= report["conditions"].keys(), report["conditions"]
spread = {"median", "p10", "p90", "min", "max", "rounds"}
names = {y["name"] for y in report["yardsticks"]}
assert {"read", "update", "copy", "fma"} <= names, names
for yardstick in report["yardsticks"]:
    assert yardstick["unit"] in ("B/s", "FLOP/s")
    assert spread == yardstick["value"].keys()
    assert yardstick["value"]["median"] > 0
assert len(report["ops"]) >= 13
for op in report["ops"]:
    assert op["name"].endswith("/5120x1280")
    assert spread == op["seconds"].keys()
    s = op["seconds"]
    assert 0 < s["min"] <= s["p10"] <= s["median"] <= s["p90"] <= s["max"]
    assert op["bytes"] > 5120 * 1280 / 8 and op["flops"] == 2 * 5120 * 1280
    assert op["bound"] in names and op["bound_seconds"] > 0
    share = op["share"]
    assert spread == share.keys()
    assert 0 < share["min"] <= share["median"] <= share["max"]
    assert share["rounds"] == s["rounds"]
    # Of each round with what was measured beside it, so not of the medians.
    around = op["bound_seconds"] / s["median"]
    assert share["min"] / 4 < around < share["max"] * 4
assert isinstance(report["notes"], list)
PYTHON
fi

echo "== a model"
expect 0 'decode/64 ' -m "$model" --quick --context 64 --prompt 32
grep -q 'filled with random rows' out || fail "does not say what was filled"
grep -qE '^    experts .*%' out || fail "no parts: $(cat out)"
grep -q 'operators at' out && fail "sizes of operators that were not measured"
expect 2 "--sequences: '0', expected a whole number from 1" \
  -m "$model" --sequences 0
expect 0 'decode/64 x 3 ' -m "$model" --quick --context 64 --prompt 32 \
  --sequences 3
grep -qE '^    3 sequences: .* tokens/s in all; a step reads .* of 48 routed' out ||
  fail "no line on three sequences: $(cat out)"
"$tool" bench -m "$model" --quick --context 0,64 --prompt 32 --sequences 3 \
  --json >out 2>err ||
  fail "-m --json: $(cat err)"
if command -v python3 >/dev/null; then
  python3 - out <<'PYTHON' || fail "the model's JSON is not as docs/bench.md says"
import json
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    report = json.load(file)
assert report["ops"] == [] and len(report["models"]) == 1
model = report["models"][0]
assert {"path", "name", "backend", "threads", "engram_io", "engram_place", "activations",
        "open_seconds",
        "first_token_seconds", "prompt", "prefill", "decode",
        "routed_experts"} == model.keys()
assert model["prompt"] == 32 and model["prefill"]["tokens"] == 32
assert [p["context"] for p in model["decode"]] == [0, 0, 64, 64]
assert [p["sequences"] for p in model["decode"]] == [1, 3, 1, 3]
assert [p["tokens"] for p in model["decode"]] == [1, 3, 1, 3]
one, three = model["decode"][:2]
assert 0 < one["experts"] < three["experts"] <= model["routed_experts"] == 48
for one in [model["prefill"], *model["decode"]]:
    assert {"name", "seconds", "bytes", "flops", "bound", "bound_seconds",
            "share", "context", "tokens", "sequences", "experts",
            "tokens_per_second",
            "of_sgemm", "engram_wait_seconds", "parts"} == one.keys(), one.keys()
    assert one["bytes"] > 0 and one["flops"] > 0
    assert one["share"]["median"] > 0
    rate = one["tokens"] / one["seconds"]["median"]
    assert abs(one["tokens_per_second"] - rate) < 1e-6 * rate
    assert abs(sum(p["share"] for p in one["parts"]) - 1) < 0.01
    assert {"experts", "head", "mhc", "attention projections"} <= {
        p["name"] for p in one["parts"]}
    for part in one["parts"]:
        assert {"name", "seconds", "share", "calls"} == part.keys()
PYTHON
fi

"$tool" bench -m "$model" --quick --context 8 --prompt 32 --json \
  --activations int8 >out 2>err || fail "--activations int8: $(cat err)"
grep -q '"activations": "int8"' out || fail "says other activations: $(cat out)"
grep -q '"bound": "fma"' out && fail "int8 products are held to fma"

expect 2 'context of 2000 tokens and 12 steps .* maximum is 1024$' \
  -m "$model" --context 8,2000
expect 2 "prompt of 1025 tokens: the model's maximum is 1024\$" \
  -m "$model" --quick --prompt 1025
expect 0 'decode/1012 ' -m "$model" --quick --prompt 32

echo "== Ctrl-C"
"$tool" bench --ops >out 2>err &
running=$!
sleep 1
kill -INT $running
wait $running
[ $? -eq 130 ] || fail "SIGINT: $(cat err)"
grep -q '^ecphory: cancelled: stopped before' err ||
  fail "nothing said after SIGINT: $(cat err)"

if [ "$failures" -ne 0 ]; then
  echo "$failures failures"
  exit 1
fi
echo "all passed"
