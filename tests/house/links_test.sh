#!/usr/bin/env bash
# Every relative link in a document leads to a file, and its #part to a heading
# there; and every document is linked from another. Runs in the repository's root.
set -euo pipefail
status=0

# anchors FILE: one a heading, as GitHub makes them.
anchors() {
  awk '/^```/ { code = !code } !code && /^#+ /' "$1" |
    sed -E 's/^#+ +//; s/\[([^]]*)\]\([^)]*\)/\1/g; s/[^[:alnum:] _-]//g; s/ /-/g' |
    tr '[:upper:]' '[:lower:]'
}

while IFS=: read -r file link; do
  target=${link#"]("} target=${target%)}
  case $target in *://*) continue ;; esac
  path=${target%%#*}
  if [ -n "$path" ]; then path=$(dirname "$file")/$path; else path=$file; fi
  if [ ! -e "$path" ]; then
    echo "$file: ($target) leads to nothing"
    status=1
  elif [[ $target == *'#'* ]] && ! anchors "$path" | grep -xF "${target#*#}" >/dev/null; then
    echo "$file: ($target) leads to no heading"
    status=1
  fi
done < <(grep -oE '\]\([^) ]+\)' ./*.md docs/*.md)

for document in docs/*.md; do
  if ! grep -lE "\]\((docs/)?${document#docs/}[)#]" ./*.md docs/*.md |
    grep -vxF "$document" >/dev/null; then
    echo "$document: no document links to it"
    status=1
  fi
done

[ "$status" -ne 0 ] || echo "every link leads somewhere"
exit "$status"
