#!/usr/bin/env bash
# No result of a CUDA call is dropped unseen, and no launch goes unchecked: a
# call stands where its result is used, or behind (void), and NoteLaunch is the
# next statement after <<<...>>>. Runs in the repository's root.
set -euo pipefail

# A call at the beginning of a statement.
dropped='(?:[;{}]|\belse\b|(?<!\(void)\))\s*\Kcuda[A-Z]\w*\s*\('
# A launch, its arguments (three levels of parentheses), and not its check.
braces='\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)'
unchecked=">>>\\s*\\K$braces\\s*;\\s*(?!(?:cuda::)?NoteLaunch\\()\\S{1,30}"
status=0

# check WHAT PATTERN FILE TEXT
check() {
  local found
  found=$(grep -oP "$2" <<<"$4") || return 0
  echo "$3: $1: $(head -c 200 <<<"$found")"
  status=1
}

check_text() {  # FILE TEXT
  check "a result is dropped" "$dropped" "$1" "$2"
  check "a launch is not checked" "$unchecked" "$1" "$2"
}

# flat: a file on one line, without comments.
flat() { sed 's,//.*,,' "$1" | tr '\n' ' '; }

# The patterns see what they must.
for bad in '; cudaFree(x);' 'if (y) cudaFree(x);' 'else cudaFree(x);' \
  'Kernel<<<1, f(2), 0, s>>>(a, g(b(c), d)); Next();'; do
  check_text example "$bad" >/dev/null
  if [ "$status" -eq 0 ]; then
    echo "not seen: $bad"
    exit 1
  fi
  status=0
done
for good in '; (void)cudaFree(x);' 'Note(cudaFree(x), "y");' \
  'e = cudaFree(x);' 'Kernel<<<1, 2>>>(a, g(b)); NoteLaunch("kernel");'; do
  check_text "$good" "$good"
done

files=0
for file in src/*/cuda/*.cu src/*/cuda/*.cuh src/*/cuda/*.cc; do
  [ -f "$file" ] || continue
  check_text "$file" "$(flat "$file")"
  files=$((files + 1))
done
[ "$status" -ne 0 ] || echo "$files files: every CUDA call and launch is checked"
exit "$status"
