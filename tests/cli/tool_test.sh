#!/usr/bin/env bash
# tool_test.sh ECPHORY REPOSITORY: runs the tool as its users do.
#
# Works on golden model A with a tokenizer of single bytes: random weights, but
# every mechanism of the architecture.
set -uo pipefail
tool=$1 repository=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
model=$work/model

cp -r "$repository/tests/golden/v41/A" "$model"
"$repository/tests/cli/make_tokenizer.sh" >"$model/tokenizer.json"
cd "$work" || exit 1

fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

# expect CODE PATTERN ARGUMENT...: runs the tool without input; its exit code
# is CODE, what it prints matches PATTERN, and an error is one line.
expect() {
  local code=$1 pattern=$2 found
  shift 2
  "$tool" "$@" >out 2>err </dev/null
  found=$?
  [ "$found" -eq "$code" ] || fail "exit code $found, expected $code: $*"
  cat out err >both
  grep -aqE -- "$pattern" both ||
    fail "no '$pattern' in: $(head -c 300 err) ($*)"
  if [ "$code" -ne 0 ]; then
    [ "$(wc -l <err)" -eq 1 ] || fail "not one line: $(cat err) ($*)"
    grep -q '^ecphory: [a-z/ ]*: ' err || fail "shape of: $(cat err) ($*)"
    [ ! -s out ] || fail "an error, but text on standard output ($*)"
  fi
}

valid_json() {
  command -v python3 >/dev/null || return 0
  python3 -m json.tool "$1" >/dev/null || fail "no valid JSON: $2"
}

echo "== help and version"
expect 0 'Subcommands' --help
expect 0 '^ecphory [0-9]+\.[0-9]+\.[0-9]+' --version
grep -qE '^backends: (cuda, )?cpu \([A-Z0-9_]+\), ref$' out || fail "--version: $(cat out)"
for command in run info tokenize logits convert synth bench; do
  expect 0 "Usage: ecphory $command" $command --help
  grep -q 'Example' out || fail "$command --help has no example"
  grep -qE '^.{81}' out && fail "$command --help has lines over 80 columns"
done

echo "== devices that are not here are named"
if "$tool" info -m "$model" --device cuda >out 2>&1; then
  grep -q '^memory of cuda:0 (' out || fail "info --device cuda: $(tail -3 out)"
  expect 2 'CUDA: device 99 does not exist, expected 0..' info -m "$model" --device cuda:99
  expect 5 'activations int8: cuda:0 .* has no such products' \
    run -m "$model" -p x --device cuda --activations int8
else
  for command in "info -m" "run -p x -m" "logits --tokens 1 -o x.npy -m" "bench -m"; do
    # shellcheck disable=SC2086 # words of a command
    expect 5 'CUDA: .*(this build has no CUDA|no NVIDIA GPU|install a newer)' \
      $command "$model" --device cuda
  done
fi
if grep -q 'cuda' <<<"$("$tool" --version)"; then
  expect 2 '--device: .cuda:x., expected cpu, cuda or cuda:N' info -m "$model" --device cuda:x
  for visible in "" -1 7; do
    CUDA_VISIBLE_DEVICES=$visible \
      expect 5 'CUDA: no NVIDIA GPU is visible' info -m "$model" --device cuda
  done
  # A library that is no driver, and a driver that is too old.
  mkdir none old
  : | cc -shared -o none/libcuda.so.1 -xc - 2>err &&
    LD_LIBRARY_PATH=$work/none \
      expect 5 'CUDA: no NVIDIA GPU is visible' info -m "$model" --device cuda
  cc -shared -fPIC -o old/libcuda.so.1 -xc - 2>err <<'DRIVER' &&
int cuDriverGetVersion(int* version) { *version = 11040; return 0; }
int cuInit(unsigned flags) { return (int)flags; }
DRIVER
    LD_LIBRARY_PATH=$work/old \
      expect 5 'supports CUDA 11.4, expected .* or later: install a newer' \
      info -m "$model" --device cuda
fi
expect 0 'vocabulary' info -m "$model" --device cpu

echo "== usage errors name the flag, the value and what is expected"
expect 2 'no command, expected run, info'
expect 2 "unknown command 'rnu'; did you mean 'run'" rnu
expect 2 "unknown command 'frobnicate'; see ecphory --help" frobnicate
expect 2 "unknown flag '--tmep'; did you mean '--temp'" run --tmep 0
expect 2 "unknown flag '--frob'; see ecphory run --help" run --frob
expect 2 "unknown argument 'y'" run -m "$model" -p x y
expect 2 '-m is missing, expected a .gguf file' run -p x
expect 2 "--temp: 'abc', expected 0 \(greedy\) to 100" run --temp abc
expect 2 "--temp: 'nan', expected" run --temp nan
expect 2 "--temp: '-1', expected" run --temp -1
expect 2 "--top-p: '0', expected more than 0" run --top-p 0
expect 2 "--min-p: '1.1', expected" run --min-p 1.1
expect 2 "--top-k: '-1', expected a whole number from 0" run --top-k -1
expect 2 "--repeat-penalty: '0', expected" run --repeat-penalty 0
expect 2 "--threads: '0', expected a whole number from 1" run --threads 0
expect 2 "-n,--max-tokens: '1e3', expected" run -n 1e3
expect 2 "--seed: '18446744073709551616', expected" \
  run --seed 18446744073709551616
expect 2 "--backend: 'gpu', expected auto\|cpu\|ref" run --backend gpu
expect 2 '--device excludes --backend' run --backend ref --device cuda
for device in gpu cuda: cuda:x cuda:-1 CUDA; do
  expect 2 "--device: '$device', expected cpu, cuda or cuda:N" run --device "$device"
done
expect 2 "--activations: 'f16', expected bf16\|f32\|int8" logits --activations f16
expect 2 "--index-keys: 'x', expected own\|vendor" logits --index-keys x
expect 2 "--experts: 'q4', expected mxfp4\|q8_0" convert --experts q4
expect 2 "--dump: 'x', expected a whole number" logits --dump x dir
expect 2 '--dump: 1 value, expected LAYER DIR$' logits --dump 1
expect 2 '--dump: 4 values, expected LAYER DIR$' logits --dump 1 d --dump 2 d
expect 2 '--max-tokens: 2 values, expected N$' run -n 1 -n 2
expect 2 '--model: no value, expected MODEL$' run -m
expect 2 '--stop: no value, expected TEXT$' run -p x --stop a --stop
expect 2 'convert needs two arguments' convert
expect 2 'expected one of --tokens and --tokens-file' logits -m "$model" -o o
expect 2 '-o is missing' logits -m "$model" --tokens 1
expect 2 '--last and --all' logits -m "$model" --tokens 1 --last --all -o o
expect 2 'prompt is empty' run -m "$model" -p ''
expect 2 'stop text is empty' run -m "$model" -p x --stop ''
expect 2 'stop text has byte 0xff at 2, expected valid UTF-8' \
  run -m "$model" -p x --stop . --stop $'ab\xff'
expect 2 'prompt is empty' run -m "$model" --prompt= -n 2
expect 2 "--temp: '', expected" run --temp= -n 2
expect 0 . run -m "$model" -n 2 -p --temp=
expect 2 '--dump: no directory' \
  logits -m "$model" --tokens 1 -o o.npy --dump 1 ''
expect 2 'chunk: .* to 8192' info -m "$model" --chunk 8193
expect 2 "the model's maximum is" info -m "$model" --ctx 4000000000

echo "== errors of files"
expect 3 'nope' run -m nope -p x
expect 3 'nope' info -m nope
expect 3 'a\\x0ab\\x1b\[31m: no such' info -m $'a\nb\e[31m'
expect 3 'nope.gguf' tokenize -m nope.gguf x
expect 3 'ids.json: no such file' \
  logits -m "$model" --tokens-file ids.json -o o.npy
printf 'GGUF' >cut.gguf
expect 4 'cut.gguf' info -m cut.gguf
expect 2 'ends in .json or .npy' \
  logits -m "$model" --tokens-file ids.txt -o o.npy
echo '[1, 2.5]' >bad.json
expect 4 'item 1 is of type number' \
  logits -m "$model" --tokens-file bad.json -o o.npy
expect 3 'No such file or directory' \
  logits -m "$model" --tokens 1 -o missing/o.npy
expect 2 'is not a regular file' logits -m "$model" --tokens 1 -o /dev/null

echo "== ids that do not exist"
for id in -1 512 2147483647 -2147483648; do
  expect 6 "$id" tokenize -m "$model" --tokens 5,$id --rows
  expect 6 "$id" logits -m "$model" --tokens 5,$id -o o.npy
done
expect 6 'a 32-bit' tokenize -m "$model" --tokens 99999999999
expect 6 'layer 6, expected 0 to 5' \
  logits -m "$model" --tokens 1 -o o.npy --dump 6 d
[ ! -e o.npy ] || fail "a failed command left its output behind"
[ ! -e d ] || fail "a failed command left its dump behind"

echo "== run"
expect 0 'stopped: length' run -m "$model" -p hello -n 40 --temp 0
cp out greedy
for threads in 1 2 3; do
  expect 0 . run -m "$model" -p hello -n 40 --temp 0 --threads $threads
  cmp out greedy || fail "--temp 0 differs with --threads $threads"
done
printf 'hello\n' | "$tool" run -m "$model" -n 40 --temp 0 >out 2>err
cmp out greedy || fail "the prompt from standard input gives another text"
expect 0 . run -m "$model" -p hello -n 40 --seed 3
cp out seeded
expect 0 . run -m "$model" -p hello -n 40 --seed 3 --threads 1
cmp out seeded || fail "the same seed gives another text"
expect 0 . run -m "$model" -p hello -n 40 --seed 4
cmp -s out seeded && fail "another seed gives the same text"
expect 0 . run -m "$model" -p hello -n 40 --temp 0 --no-engram
cmp -s out greedy && fail "--no-engram changes nothing"
expect 0 'Engram: 0 rows' run -m "$model" -p hello -n 4 --no-engram
expect 0 'exposed of' run -m "$model" -p hello -n 4
expect 0 '1 generated' run -m "$model" -p x -n 1
expect 0 'stopped: context' run -m "$model" -p hello -n 40 --temp 0 --ctx 8
expect 6 'the prompt has 5 tokens, more than the context of 4;.* --ctx' \
  run -m "$model" -p hello --ctx 4
expect 0 . run -m "$model" -p hello -n 9 --quiet
[ ! -s err ] || fail "--quiet says: $(cat err)"
iconv -f UTF-8 -t UTF-8 greedy >/dev/null || fail "the text is no UTF-8"

echo "== ways to read Engram rows"
for io in auto uring pread buffered mmap; do
  expect 0 . run -m "$model" -p hello -n 40 --temp 0 --engram-io $io
  cmp out greedy || fail "--temp 0 differs with --engram-io $io"
done
for place in disk host; do
  expect 0 . run -m "$model" -p hello -n 40 --temp 0 --engram-place $place
  cmp out greedy || fail "--temp 0 differs with --engram-place $place"
done
expect 2 "'ram', expected auto|" run -m "$model" -p hello --engram-io ram
expect 2 "'tape', expected disk|host|gpu" \
  run -m "$model" -p hello --engram-place tape
expect 2 'engram_place = gpu: cpu .* expected disk or host' \
  run -m "$model" -p hello --engram-place gpu
expect 2 'engram_place = gpu: cpu .* expected disk or host' \
  info -m "$model" --engram-place gpu
expect 2 'with engram_place = host nothing is read' \
  run -m "$model" -p hello --engram-place host --engram-io mmap
expect 2 'with engram_place = host the whole' \
  run -m "$model" -p hello --engram-place host --engram-cache 1M
expect 0 'Engram tables' info -m "$model" --engram-place host
for cache in 0 1 64K 1M 1G; do
  expect 0 . run -m "$model" -p hello -n 40 --temp 0 --engram-cache $cache
  cmp out greedy || fail "--temp 0 differs with --engram-cache $cache"
done
expect 0 . run -m "$model" -p hello -n 40 --temp 0 --engram-io-threads 1 \
  --engram-depth 1
cmp out greedy || fail "--temp 0 differs with one read in flight"
expect 2 "'tape', expected" run -m "$model" -p hello --engram-io tape
for size in -1 '' M 1.5G 64X 64MB 99999999999G 2000T; do
  expect 2 'engram-cache.*expected bytes' \
    run -m "$model" -p hello --engram-cache "$size"
done
expect 2 'from 1 to 256' run -m "$model" -p hello --engram-io-threads 0
expect 2 'from 1 to 4096' run -m "$model" -p hello --engram-depth 4097
expect 0 '"engram_io"' logits -m "$model" --tokens 1 -o o.npy --json \
  --engram-io pread

echo "== several prompts at once"
printf 'hello\n\nonce upon a time\r\nx\n' >prompts.txt
printf '"hello"\n{"prompt": "once upon a time"}\n"x"\n' >prompts.jsonl
for sampling in "--temp 0" "--seed 3"; do
  for prompt in hello 'once upon a time' x; do
    # shellcheck disable=SC2086
    expect 0 . run -m "$model" -p "$prompt" -n 20 --quiet $sampling
    cat out
  done >alone
  for file in prompts.txt prompts.jsonl; do
    for sequences in 1 2 32; do
      # shellcheck disable=SC2086
      expect 0 '3 prompts of .* generated in' run -m "$model" -n 20 $sampling \
        --prompts-file $file --sequences $sequences
      grep -av '^== prompt [0-2]: length$' out >together
      cmp alone together || fail "$file, $sequences at a time: another text"
    done
  done
done
expect 0 . run -m "$model" --prompts-file prompts.txt -n 4 --json
valid_json out 'run --prompts-file'
for key in results stop_reason sequences generated_tokens tokens_per_second; do
  grep -q "\"$key\":" out || fail "run --prompts-file --json lacks $key"
done
expect 3 'nope' run -m "$model" --prompts-file nope
expect 2 "--prompts-file: '', expected a name" \
  run -m "$model" --prompts-file "" </dev/null
expect 2 'no prompt in it' run -m "$model" --prompts-file /dev/null
echo '{"text": 1}' >wrong.jsonl
expect 2 'wrong.jsonl, line 1: expected a JSON string' \
  run -m "$model" --prompts-file wrong.jsonl
for line in '"cut' '"\ud800"' 'plain' $'"\xff"'; do
  printf '"good"\n%s\n' "$line" >wrong.jsonl
  expect 2 'wrong.jsonl, line 2: no valid JSON in UTF-8' \
    run -m "$model" --prompts-file wrong.jsonl
done
expect 2 'prompts-file' run -m "$model" -p x --prompts-file prompts.txt
expect 2 'sequences' run -m "$model" -p x --sequences 3
expect 2 'from 1 to 8192' run -m "$model" --prompts-file prompts.txt \
  --sequences 0
expect 6 'prompts.txt, line 3: the prompt has 16 tokens, more than .* 8;.* --ctx' \
  run -m "$model" --prompts-file prompts.txt --ctx 8
expect 6 'prompts.jsonl, line 2: the prompt has 16 tokens' \
  run -m "$model" --prompts-file prompts.jsonl --ctx 8
expect 0 '^memory for 32 sequences of 64 tokens' \
  info -m "$model" --ctx 64 --sequences 32

echo "== stop text"
expect 0 . run -m "$model" -p hello -n 40 --temp 0 --json
valid_json out run
for key in wait_seconds read_seconds cache_hits token_wait_seconds \
  token_read_seconds p99 io mode direct fallback reason prefill skipped_tokens \
  skipped_layer_passes; do
  grep -q "\"$key\":" out || fail "run --json lacks $key"
done
stop=$(head -c 6 greedy | tail -c 2)
expect 0 'stopped: stop' run -m "$model" -p hello -n 40 --temp 0 --stop "$stop"
grep -qF -- "$stop" out && fail "the stop text was shown"

echo "== tokenize, info and logits"
expect 0 '"h"' tokenize -m "$model" hello
expect 0 'layer 3:' tokenize -m "$model" --rows hello
expect 0 '"ids": \[' tokenize -m "$model" --rows --json "héllo"
valid_json out tokenize
expect 2 'expected one of them' tokenize -m "$model" hello --tokens 1
expect 0 'layer 1: 3,144 rows' info -m "$model" --tensors
expect 0 '"engram"' info -m "$model" --tensors --json --ctx 100
valid_json out info
tokens=66,231,163,507,423,99,157,436,447,144,26,163,507,423,99,163,507,423
expect 0 '\[18, 512\]' logits -m "$model" --tokens $tokens -o all.npy --dump 2 d
for chunk in 1 2 5; do
  expect 0 . logits -m "$model" --tokens $tokens -o o.npy --chunk $chunk \
    --dump 2 d$chunk
  cmp all.npy o.npy || fail "--chunk $chunk gives other logits"
  for file in streams_out router.indices attn_out index_selected index_scores; do
    cmp d/$file.npy d$chunk/$file.npy ||
      fail "--chunk $chunk gives another $file"
  done
done
expect 0 . logits -m "$model" --tokens $tokens -o o.npy --prefill 7 --chunk 3
cmp all.npy o.npy || fail "--prefill gives other logits"
vendor=(logits -m "$model" --tokens "$tokens,$tokens" --index-keys vendor)
expect 0 . "${vendor[@]}" --chunk 1 -o steps.npy
expect 0 . "${vendor[@]}" --chunk 1 --prefill 24 -o o.npy
cmp -s steps.npy o.npy && fail "--index-keys vendor: --prefill changes nothing"
expect 2 'prefill' logits -m "$model" --tokens 1 -o o.npy --prefill 0
long=$tokens,$tokens,$tokens
last=(logits -m "$model" --tokens "$long" --last --chunk 4 --json)
expect 0 '"skipped_tokens": 32' "${last[@]}" -o skip.npy
expect 0 '"skipped_tokens": 0' "${last[@]}" -o full.npy --full-prefill
cmp skip.npy full.npy || fail "skipped layers change the logits"
expect 0 '"skipped_tokens": 38' "${last[@]}" -o o.npy --prefill replay
expect 2 'expected --last' logits -m "$model" --tokens 1 -o o.npy \
  --prefill replay
expect 2 'expected one of them' "${last[@]}" -o o.npy --prefill replay \
  --full-prefill
expect 2 'skip .same logits' run -m "$model" -p hello --prefill fast
echo "[$tokens]" >ids.json
expect 0 '"shape"' logits -m "$model" --tokens-file ids.json -o o.npy --json
valid_json out logits
cmp all.npy o.npy || fail "--tokens-file gives other logits"
expect 0 '\[1, 512\]' logits -m "$model" --tokens $tokens --last -o last.npy
cmp <(tail -c 2048 all.npy) <(tail -c 2048 last.npy) ||
  fail "--last is not the last row"
for flags in "--activations bf16" "--no-state-rounding" "--no-engram"; do
  # shellcheck disable=SC2086
  expect 0 . logits -m "$model" --tokens $tokens -o o.npy $flags
  cmp -s all.npy o.npy && fail "$flags changes nothing"
done

echo "== engram trace"
trace=(engram trace -m "$model")
expect 0 'Example' "${trace[@]}" --help
expect 0 'layer 3' "${trace[@]}" -p hello
expect 0 'mod .* = row' "${trace[@]}" --tokens 1,2,509,3 --long
grep -q 'dead: an image position' out || fail "no dead position in the trace"
expect 0 '"gate"' "${trace[@]}" -p hello --json
valid_json out "engram trace"
expect 0 '"streams": 0' "${trace[@]}" -p hello --json --no-gates
echo "<script>alert(1)</script>" >hostile.txt
expect 0 'wrote page.html: 26 of 26' "${trace[@]}" -f hostile.txt --html page.html
grep -q '&lt;script&gt;\|<span[^>]*>&lt;</span>' page.html || fail "no text in the page"
[ "$(grep -o '<script' page.html | wc -l)" -eq 2 ] || fail "the text is markup"
expect 0 'wrote page.html: 9 of 26' \
  "${trace[@]}" -f hostile.txt --limit 9 --no-gates --html page.html
expect 0 . engram synth --layout mini -o alone.gguf \
  --tokenizer "$model/tokenizer.json"
expect 0 '"streams": 0' engram trace -m alone.gguf -p hello --no-gates --json
expect 5 'Engram tables without a model' engram trace -m alone.gguf -p hello
expect 2 'more than one of -p, -f' "${trace[@]}" -p x --tokens 1
expect 2 'is also read' "${trace[@]}" -f hostile.txt --html hostile.txt
expect 2 'limit' "${trace[@]}" -p x --limit 0
expect 2 'no token to trace' "${trace[@]}" -p ''
expect 3 'nope' "${trace[@]}" -f nope
expect 6 '512' "${trace[@]}" --tokens 512
expect 2 'no Engram memory' engram trace -m "$repository/tests/golden/v41/B" --tokens 1

echo "== engram report"
report=(engram report -m "$model" --decode 4 --ctx 64)
seq 1 40 >numbers.txt
expect 0 'Example' "${report[@]}" --help
expect 0 'bits per token' "${report[@]}" -f numbers.txt
expect 0 '"hit_rate"' "${report[@]}" -f numbers.txt --kind b=hostile.txt --json
valid_json out "engram report"
expect 0 'wrote report.html' "${report[@]}" --kind '<b>=hostile.txt' --html report.html
grep -q '<script' report.html && fail "the report has a script"
grep -q '&lt;b&gt;' report.html || fail "no kind in the report"
expect 2 'no text, expected' "${report[@]}"
expect 2 "--kind: 'x', expected NAME=FILE" "${report[@]}" --kind x
expect 2 'is also read' "${report[@]}" -f numbers.txt --html numbers.txt
expect 3 'nope' "${report[@]}" -f nope
: >empty.txt
expect 2 'no text to report on' "${report[@]}" -f empty.txt

echo "== convert"
expect 0 'wrote out.gguf, .*B \([0-9,]* bytes\)$' convert "$model" out.gguf
expect 0 'gguf' info -m out.gguf
expect 0 . run -m out.gguf -p hello -n 5 --temp 0
"$tool" info -m out.gguf --tensors >tensors
# damage TENSOR BYTES: out.gguf with so many bytes 0xff at the tensor's start.
damage() {
  local offset
  offset=$(sed -n "s/.*$1 .* offset \([0-9]*\),.*/\1/p" tensors | head -n 1)
  cp out.gguf damaged.gguf
  head -c "$2" /dev/zero | tr '\0' '\377' |
    dd of=damaged.gguf bs=1 seek="$offset" conv=notrunc status=none
}
damage 'output\.weight' 34
expect 4 "'output.weight': row 0 has an infinite or NaN scale" \
  logits -m damaged.gguf --tokens $tokens -o nan.npy
damage 'token_embd\.weight' 131072
for which in --all --last; do
  expect 4 'logit of id 0 at token' \
    logits -m damaged.gguf --tokens 0,0,0 $which -o nan.npy
done
expect 4 'logit of token 0 is NaN' run -m damaged.gguf -p hello -n 5
compgen -G 'nan.npy*' && fail "damaged logits were written"
expect 3 'nope' convert nope out2.gguf
[ ! -e out2.gguf ] || fail "a failed convert left its output behind"

echo "== synth"
synth=(synth --preset mini --engram-rows 2000)
expect 0 'wrote synth.gguf: deepseek41, 226 tensors' "${synth[@]}" -o synth.gguf
expect 0 . run -m synth.gguf -p hello -n 5 --temp 0
expect 2 'exists; give another output or --overwrite' \
  "${synth[@]}" -o synth.gguf
expect 0 '"written": true' "${synth[@]}" --layers 2 -o synth.gguf --overwrite --json
valid_json out 'synth --json'
expect 0 'wrote synth.directory' "${synth[@]}" -o synth.directory
expect 0 . logits -m synth.directory --tokens 1,2,3 -o synth.npy
expect 2 'exists; give another output directory' \
  "${synth[@]}" -o synth.directory
expect 0 'would write full.gguf: deepseek41, 1,046 tensors' \
  synth -o full.gguf --dtypes q2 --dry-run
[ ! -e full.gguf ] || fail "--dry-run wrote a file"
expect 0 'would write x.GGUF: deepseek41, 1,046 tensors of ' \
  synth --layers 40 -o x.GGUF --dry-run
expect 0 'would write v4.gguf: deepseek4, [0-9]+ tensors of .* bytes\)$' \
  synth --preset v4-flash --layers 1 -o v4.gguf --dry-run
expect 2 'o is missing' synth
expect 0 '^.*; 1 generated; first token after' run -m synth.gguf -p hello -n 1
expect 0 '; 2 generated at [0-9.]+ tokens/s' run -m synth.gguf -p hello -n 2 --temp 0
expect 0 '"tokens_per_second": null' run -m synth.gguf -p hello -n 1 --json
# stopped SIGNALS OUTPUT ARGUMENT...: interrupted once a part of OUTPUT is there.
# The first signal asks for a clean end, the second ends at once, more that come
# meanwhile change nothing: none leaves a part.
stopped() {
  local signals=$1 output=$2 running signal
  shift 2
  "$tool" "$@" -o "$output" >out 2>err </dev/null &
  running=$!
  for _ in $(seq 200); do
    compgen -G "$output.partial-*" >/dev/null && break
    sleep 0.02
  done
  for signal in $signals; do kill -"$signal" $running 2>/dev/null; done
  wait $running
  [ $? -eq 130 ] || fail "$output, $signals: $(cat err)"
  compgen -G "$output*" && fail "$signals left a part of $output"
  rm -rf "$output"
}
several=(INT "INT INT" "TERM HUP INT TERM")
for signals in "${several[@]}"; do
  for output in stopped.gguf stopped.directory; do
    stopped "$signals" $output \
      synth --layers 2 --experts 8 --engram-rows 2000000
  done
done
expect 2 'layers 41: v41-flash has 40 layers' synth --layers 41 -o x.gguf
compgen -G '*.partial-*' && fail "synth left a temporary behind"

echo "== placement of threads and weights"
mini=(run -m synth.gguf -p hello -n 5 --temp 0)
expect 0 . "${mini[@]}" --cpu-affinity none
cp out mapped
for flags in '--weights copy' '--cpu-affinity auto' '--cpu-affinity 0' \
  '--weights copy --threads 1'; do
  # shellcheck disable=SC2086
  expect 0 . "${mini[@]}" $flags
  cmp -s out mapped || fail "$flags: other text than without"
done
refused() {  # PATTERN LIST
  for command in 'run -p hello' 'bench --prompt 4' info; do
    # shellcheck disable=SC2086
    expect 2 "--cpu-affinity '$2': .*$1" $command -m synth.gguf --cpu-affinity "$2"
  done
}
refused 'processor [0-9]*: this process may run on' 0-9999
refused 'processor 65535: this process may run on' 65535
refused 'expected processors such as 0-3,8' 999999
refused '.3-1. runs backwards, expected 1-3' 3-1
refused 'expected processors such as 0-3,8' x
refused 'expected processors such as 0-3,8' ''
refused 'expected processors such as 0-3,8' 0,
refused 'processor 0 is given twice' 0,0
if command -v taskset >/dev/null; then
  taskset -c 0 "$tool" "${mini[@]}" --cpu-affinity 1 >out 2>err &&
    fail "--cpu-affinity 1 on processor 0 alone"
  grep -q "may run on 0$" err || fail "outside the mask: $(cat err)"
fi
expect 2 '--threads 2: --cpu-affinity 0 names 1 processor$' \
  "${mini[@]}" --cpu-affinity 0 --threads 2
expect 0 '1 threads?, .*cpu' \
  bench -m synth.gguf --quick --context 8 --prompt 8 --cpu-affinity 0
expect 0 'operators .* on 1 thread$' info -m synth.gguf --cpu-affinity 0
expect 2 "weights: 'ram', expected copy|map" "${mini[@]}" --weights ram
expect 0 'copied weights' info -m synth.gguf --weights copy
expect 0 'operators .* on 3 threads' info -m synth.gguf --threads 3

echo "== outputs that are inputs"
cp -r "$model" copy
for file in model-00001-of-00002.safetensors config.json tokenizer.json; do
  expect 2 'is a file of the model to convert' convert copy copy/$file
done
expect 0 . convert copy copy/again.gguf
expect 0 . convert copy copy/again.gguf
diff -r "$model" copy | grep -qv 'Only in copy: again.gguf' &&
  fail "convert changed its input"
expect 2 'is also read' logits -m out.gguf --tokens 1 -o out.gguf
expect 2 'is also read' logits -m out.gguf --tokens-file ids.json -o ids.json
expect 2 'is also read' logits -m copy --tokens 1 -o copy/config.json
ln -s nowhere linked && mv linked copy/tokenizer.json
expect 3 'copy/tokenizer.json: cannot open' info -m copy

echo "== limits"
(
  ulimit -f 1
  "$tool" logits -m "$model" --tokens $tokens -o big.npy --dump 2 big.npy.d >out 2>err
  [ $? -eq 7 ] || fail "over the file size limit: $(cat err)"
  exit $failures
)
failures=$((failures + $?))
compgen -G 'big.npy*' && fail "a failed write left its file behind"

echo "== streams that break"
"$tool" info -m "$model" >/dev/full 2>err
[ $? -eq 7 ] || fail "a full disk goes unreported: $(cat err)"
"$tool" run -m "$model" -p x -n 20 --quiet >/dev/full 2>err
[ $? -eq 7 ] || fail "a full disk goes unreported by run: $(cat err)"
for command in "run -p x -n 2" "info --tensors" "logits --tokens 1 -o o.npy"; do
  # shellcheck disable=SC2086
  "$tool" ${command%% *} -m "$model" ${command#* } >&- 2>err
  [ $? -eq 8 ] || fail "closed standard output ($command): $(cat err)"
done
timeout 20 "$tool" tokenize -m "$model" <&- >out 2>err
[ $? -eq 8 ] || fail "closed standard input: $(cat err)"
"$tool" run -m "$model" -p x -n 1000000 --ctx 1024 2>err | head -c 1 >/dev/null
code=${PIPESTATUS[0]}
[ "$code" -eq 141 ] || fail "a reader that leaves gives exit code $code"

echo "== signals"
# A writer that never ends keeps the tool reading until the signal.
for signal in INT TERM; do
  mkfifo input.$signal
  sleep 100 >input.$signal &
  writer=$!
  "$tool" run -m "$model" <input.$signal >out 2>err &
  running=$!
  sleep 0.5
  # A background job of a script ignores SIGINT unless it installs a handler,
  # as the tool does.
  kill -$signal $running
  wait $running
  code=$?
  [ "$code" -eq 130 ] || fail "SIG$signal gives exit code $code: $(cat err)"
  kill $writer
  wait $writer 2>/dev/null
done

# Nor does a file that has no writer keep it.
mkfifo prompts.fifo
"$tool" run -m "$model" --prompts-file prompts.fifo >out 2>err &
running=$!
sleep 0.5
kill -INT $running
wait $running
code=$?
[ "$code" -eq 130 ] || fail "SIGINT at a FIFO gives exit code $code: $(cat err)"

echo "[$(yes 7, | head -n 999)7]" >long.json
for signals in "${several[@]}"; do
  stopped "$signals" stopped.npy \
    logits -m "$model" --backend ref --tokens-file long.json
done

# The reference operators are slow enough to be met in the middle.
mkfifo text
"$tool" run -m "$model" -p x -n 1000000 --ctx 1024 --backend ref >text 2>err &
running=$!
exec 3<text
head -c 1 <&3 >/dev/null
kill -INT $running
wait $running
[ $? -eq 130 ] || fail "SIGINT while generating: $(cat err)"
grep -q 'stopped: cancelled' err || fail "no facts after SIGINT: $(cat err)"
exec 3<&-

if [ "$failures" -ne 0 ]; then
  echo "$failures failures"
  exit 1
fi
echo "all passed"
