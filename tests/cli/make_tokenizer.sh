#!/usr/bin/env bash
# Prints a tokenizer.json of 512 tokens for golden model A, which has none:
# ids 0 to 255 are the bytes, in the GPT-2 byte alphabet, 256 to 511 are pairs
# of letters that only a model's output can hold.
set -euo pipefail

# The alphabet's character for a byte: itself where that is printable, else
# the next unused code point from 256 on.
next=256
separator=''
printf '{"pre_tokenizer":{"type":"ByteLevel","use_regex":false},'
printf '"decoder":{"type":"ByteLevel"},"model":{"type":"BPE","merges":[],'
printf '"vocab":{'
for byte in $(seq 0 255); do
  code=$byte
  if ((byte < 33 || (byte > 126 && byte < 161) || byte == 173)); then
    code=$next
    next=$((next + 1))
  fi
  printf '%s"\\u%04x":%d' "$separator" "$code" "$byte"
  separator=','
done
id=256
for first in {a..p}; do
  for second in {a..p}; do
    printf ',"%s%s":%d' "$first" "$second" "$id"
    id=$((id + 1))
  done
done
printf '}}}\n'
