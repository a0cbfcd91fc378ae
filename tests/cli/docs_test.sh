#!/usr/bin/env bash
# The commands that documents and helps show: each is a command of the tool, and
# has the flags it is shown with. docs_test.sh TOOL REPOSITORY
set -uo pipefail

tool=$1
cd "$2" || exit 1
failures=0
checked=0

fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

# commands FILE...: "ecphory run -m x | y # z" on a line of its own, or between
# backticks, without what follows |, # or >. A \ joins lines.
# shellcheck disable=SC2016
commands() {
  sed -e ':join' -e '/\\$/{N;s/\\\n */ /;b join' -e '}' "$@" |
    grep -oE '(^ *|[|`] ?)ecphory [a-z]+ [^|#>`]*' | sed -E 's/^[ |`]*//'
}

# check WHERE WORD...: the words after "ecphory".
check() {
  local where=$1 command=$2 help word
  shift 2
  if [ "$command" = engram ]; then
    [[ ${1-} =~ ^[a-z]+$ ]] || return 0  # "engram COMMAND"
    command="engram $1"
    shift
  fi
  # shellcheck disable=SC2086
  help=$("$tool" $command --help 2>/dev/null)
  case $help in
    *"Usage: ecphory $command "*) ;;
    *) fail "$where: ecphory $command is no command" && return ;;
  esac
  checked=$((checked + 1))
  for word in "$@"; do
    word=${word#[}
    [[ $word =~ ^--?[a-z] ]] || continue
    word=${word%]}
    grep -qE -- "(^ +|,)${word%%=*}([ ,]|\$)" <<<"$help" ||
      fail "$where: ecphory $command has no ${word%%=*}"
  done
}

# check_all WHERE: of the lines on standard input.
check_all() {
  local line words
  while read -r line; do
    read -ra words <<<"$line"
    check "$1" "${words[@]:1}"
  done
}

for document in *.md docs/*.md; do
  check_all "$document" < <(commands "$document")
done
for command in run info tokenize logits convert synth bench engram \
  'engram '{info,verify,pack,synth,bench,trace,report}; do
  # shellcheck disable=SC2086
  check_all "$command --help" < <("$tool" $command --help | commands)
done

[ "$checked" -ge 60 ] || fail "only $checked commands found"
if [ "$failures" -ne 0 ]; then
  echo "$failures failures"
  exit 1
fi
echo "$checked commands are as the tool has them"
