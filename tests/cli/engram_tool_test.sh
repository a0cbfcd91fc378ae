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
expect 0 'rows of 66 bytes, e4m3_e8m0_32_row66' info a.gguf --no-measure

echo "== verify"
expect 0 'no fault' verify a.gguf --write-manifest a.gguf.xxh
expect 0 'held against' verify a.gguf
expect 4 'holes' verify holes.gguf
cp a.gguf b.gguf
size=$(stat -c %s b.gguf)
printf '\377' | dd of=b.gguf bs=1 seek=$((size - 20000)) conv=notrunc 2>dd
expect 4 'faults? in the tables' verify b.gguf --manifest a.gguf.xxh --json
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
# Also where it was killed with the file finished and its journal still there.
[ -e killed.bin ] && [ ! -e killed.bin.partial.journal ] ||
  expect 0 'wrote killed.bin' pack a.gguf -o killed.bin
cmp whole.bin killed.bin || fail "a killed pack ended with other bytes"
[ ! -e killed.bin.partial ] && [ ! -e killed.bin.partial.journal ] ||
  fail "a finished pack left something behind"
expect 0 'no fault' verify whole.bin --config a.gguf

echo "== per-layer tables"
# Little-endian 64-bit numbers, none above 32767.
i64() {
  local value
  for value in "$@"; do
    printf '%b' "$(printf '\\x%02x\\x%02x' $((value & 255)) $((value >> 8)))"
    head -c 6 /dev/zero
  done
}
table=model.layers.1.ple.ple_embedding
entry() { printf '"%s.%s":{"dtype":"%s","shape":[%s],"data_offsets":[%s]}' \
  $table "$@"; }
header="{$(entry layer_multipliers I64 3 0,24),$(
  entry ngram_heads_offsets I64 4 24,56),$(
  entry ngram_heads_vocab_sizes I64 4 56,88),$(
  entry ngram_embedding.shard_0.weight BF16 512,32 88,32856)}"
mkdir shards
{
  i64 ${#header}
  printf '%s' "$header"
  i64 3 5 7 0 97 198 301 97 101 103 107
  head -c 32768 /dev/zero | tr '\0' '@'
} >shards/model.safetensors
expect 3 'give the model.s EOS token id' pack shards -o side.gguf
ln -s shards/model.safetensors link.gguf
expect 2 'is an input' pack shards --eos 7 -o link.gguf --overwrite
expect 0 '512 rows of 34 bytes' pack shards --eos 7 -o side.gguf
expect 0 '512 rows of 64 bytes' pack shards --eos 7 -o bf16.gguf --codec bf16
expect 0 'no fault' verify side.gguf --write-manifest side.gguf.xxh
expect 0 'held against' verify side.gguf
expect 0 '4 heads of 97 to 107 rows, 408 in all; EOS 7' info side.gguf
expect 0 '"eos_id": 7' info bf16.gguf --no-measure --json
valid_json info
expect 4 'eos_token_id is 7, expected 8' info side.gguf --eos 8
expect 2 "--eos: 'x', expected a whole number" info side.gguf --eos x
expect 2 'an EOS id was given' info a.gguf --eos 7
expect 5 "'ecphory engram pack' makes" info shards
expect 5 'packed already' pack side.gguf -o again.gguf
expect 5 'ends in .gguf' pack shards --eos 7 -o side.bin
expect 5 'a per-layer n-gram table' bench side.gguf
expect 5 "found 'qwen38-next-ple'" trace -m side.gguf -p text
echo text >text.txt
expect 5 "found 'qwen38-next-ple'" report -m side.gguf -f text.txt

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
expect 2 "--depths: '0', expected a whole number" bench a.gguf --depths 0
expect 2 "--depths: '1x', expected a whole number" bench a.gguf --depths 1,1x
expect 2 "--depths: '1,,2', expected values between commas" \
  bench a.gguf --depths 1,,2
expect 2 "--io: 'pread,', expected values between commas" \
  bench --io pread, a.gguf

echo "== outputs onto inputs"
cp a.gguf kept.gguf
for name in a.gguf ./a.gguf; do
  expect 2 'is also read' verify a.gguf --write-manifest "$name"
  expect 2 'is also read' pack a.gguf -o new.bin --write-manifest "$name"
  expect 2 'is also read' bench a.gguf --svg "$name"
done
expect 2 'is also read' bench a.gguf --tokens-file ids.json --svg ids.json
expect 2 "is the output's" pack a.gguf -o new.bin --write-manifest new.bin
expect 2 'both the manifest and the state' \
  verify a.gguf --write-manifest sums --state sums
expect 3 'no/sums: cannot create' verify a.gguf --write-manifest no/sums
cmp a.gguf kept.gguf || fail "an input was written to"
[ ! -e new.bin ] && [ ! -e new.bin.partial ] && [ ! -e sums ] ||
  fail "a refused command left something behind"

echo "== hostile names"
odd=$(printf 'odd\033[31m\377<&.gguf')
cp a.gguf "$odd"
for command in info verify; do
  expect 0 'odd.x1b.31m.xff' $command "$odd"
  expect 0 'odd' $command "$odd" --json
  valid_json $command
done
expect 0 'rows/s' bench "$odd" --depths 4 --io pread --seconds 0.02 --svg odd.svg
if command -v python3 >/dev/null; then
  python3 -c 'import xml.dom.minidom as x; x.parse("odd.svg")' ||
    fail "the picture is no XML"
fi

echo "== little memory"
# A sanitizer needs terabytes of addresses: nothing to learn there.
if (ulimit -v 4000000 && "$tool" --version) >out 2>err; then
  # Where the program cannot even be loaded and start, nothing of it can say so.
  starts=16
  until (ulimit -c 0 -v $((starts * 1024)) && "$tool" --version) >out 2>err; do
    [ "$starts" -lt 400 ] || break
    starts=$((starts + 2))
  done 2>/dev/null
  tried=0
  for more in 0 1 2 4 6 8 12 16 24 32; do
    size=$((starts + more))
    (ulimit -c 0 -v $((size * 1024)) && "$tool" --version) >out 2>err || continue
    tried=$((tried + 1))
    for arguments in 'verify a.gguf' 'pack a.gguf -o small.bin --overwrite' \
      'bench a.gguf --depths 256 --seconds 0.01'; do
      # shellcheck disable=SC2086
      (ulimit -c 0 -v $((size * 1024)) && "$tool" engram $arguments) \
        >out 2>err </dev/null
      code=$?
      case $code in
        0 | 7) ;;
        *) fail "exit code $code with $size MiB: $arguments: $(head -c 300 err)" ;;
      esac
    done
  done
  [ "$tried" -ge 4 ] || fail "little memory: the program starts in $tried of 10 sizes from $starts MiB"
  rm -f small.bin*
fi

echo "== help onto a full disk"
"$tool" engram --help >/dev/full 2>err
[ $? -eq 7 ] || fail "help onto a full disk: $(cat err)"
expect 2 "expected auto|'fast'" bench a.gguf --io fast

if [ "$failures" -gt 0 ]; then
  echo "$failures failures"
  exit 1
fi
echo "all passed"
