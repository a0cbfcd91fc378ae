#!/usr/bin/env bash
# Dependencies point one way. A file may include headers of its own folder and
# of folders before it in this order; include/ecphory may be included anywhere
# and includes only itself and the standard library. src/cli sees include/
# only. Runs in the repository's root.
set -euo pipefail

order="base io tensor format ops text engram capi ple model runtime tables trace measure cli"
status=0

complain() {
  echo "$1: $2"
  status=1
}

# rank FOLDER: its place in the order, nothing for an unknown one.
rank() {
  local i=0 name
  for name in $order; do
    i=$((i + 1))
    [ "$name" != "$1" ] || echo "$i"
  done
}

# Lines "file<TAB>header" of every #include "..." and <...> in these files.
includes() {
  grep -oE '^#include [<"][^">]+' "$@" /dev/null |
    sed -E 's/:#include [<"]/\t/'
}

check_source() {  # FILE HEADER
  local file=$1 header=$2 from to
  from=${file#src/}
  from=${from%%/*}
  case $header in
    ecphory/*) return ;;
    */*) ;;
    *) return ;;
  esac
  to=${header%%/*}
  [ -d "src/$to" ] || return 0  # a system or third-party header
  if [ "$from" = cli ]; then
    complain "$file" "includes $header; src/cli may use include/ecphory only"
  elif [ -z "$(rank "$from")" ]; then
    complain "$file" "src/$from has no place in the order ($order)"
  elif [ "$(rank "$to")" -gt "$(rank "$from")" ]; then
    complain "$file" "includes $header, but $to comes after $from ($order)"
  fi
}

check_public() {  # FILE HEADER
  case $2 in
    ecphory/* | stddef.h | stdint.h) ;;
    */* | *.h | *.hpp)
      complain "$1" "includes $2; public headers use the standard library only"
      ;;
  esac
}

while IFS=$'\t' read -r file header; do
  check_source "$file" "$header"
done < <(includes -r src --include='*.h' --include='*.cc' --include='*.cu*')

while IFS=$'\t' read -r file header; do
  check_public "$file" "$header"
done < <(includes include/ecphory/*.h)

[ "$status" -ne 0 ] || echo "every include points the right way"
exit "$status"
