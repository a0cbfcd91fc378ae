#!/usr/bin/env bash
# install_test.sh SOURCE BUILD CXX CC: an installed Ecphory works as its users
# find it: the examples build by find_package and by pkg-config, and run.
set -euo pipefail
source=$1 build=$2 cxx=$3 cc=$4
work=$build/install_test
prefix=$work/prefix
model=$source/models/ecphory-mini.gguf
rm -rf "$work"
mkdir -p "$work"

fail() {
  echo "FAILED: $*"
  exit 1
}

cmake --install "$build" --prefix "$prefix" >"$work/install.log"

echo "== find_package"
cmake -S "$source/examples" -B "$work/examples" -G Ninja \
  -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_C_COMPILER="$cc" \
  -DCMAKE_PREFIX_PATH="$prefix" >"$work/cmake.log"
cmake --build "$work/examples"

echo "== pkg-config"
pc=$(find "$prefix" -name ecphory.pc)
export PKG_CONFIG_PATH=${pc%/*}
flags=$(pkg-config --cflags --libs ecphory)
libdir=$(pkg-config --variable=libdir ecphory)
# shellcheck disable=SC2086
"$cxx" -std=c++20 -Wall -Wextra -Werror "$source/examples/generate.cc" $flags \
  "-Wl,-rpath,$libdir" -o "$work/generate"

flags=$(pkg-config --cflags --libs ecphory-engram)
# shellcheck disable=SC2086
"$cc" -std=c11 -pedantic -Wall -Wextra -Werror \
  "$source/examples/engram_c/main.c" $flags "-Wl,-rpath,$libdir" \
  -o "$work/engram_c"
# The header is C++ as well.
# shellcheck disable=SC2086
echo '#include <ecphory/engram.h>' | "$cxx" -std=c++11 -pedantic -Wall -Wextra \
  -Werror -fsyntax-only -x c++ - $flags

version=$(sed -n 's/.*VERSION_STRING "\(.*\)"/\1/p' \
  "$source/include/ecphory/version.h")
for name in ecphory ecphory-engram; do
  [ "$(pkg-config --modversion $name)" = "$version" ] ||
    fail "pkg-config $name and version.h disagree on the version"
done
[ "$("$prefix/bin/ecphory" --version | head -1)" = "ecphory $version" ] ||
  fail "the tool and version.h disagree on the version"

echo "== exported symbols"
# Everything that leaves the library is the engine's own.
foreign=$(nm -DC --defined-only "$libdir/libecphory.so" |
  grep -vE ' (A|[A-Z] (typeinfo (name )?for |vtable for )?ecphory::)' || true)
[ -z "$foreign" ] || fail "foreign symbols are exported: $foreign"

foreign=$(nm -D --defined-only "$libdir/libecphory-engram.so" |
  grep -vE ' (A ECPHORY_ENGRAM_1|T ecphory_engram_[a-z0-9_]+)(@@?ECPHORY_ENGRAM_1)?$' || true)
[ -z "$foreign" ] || fail "foreign symbols are exported: $foreign"
declared=$(grep -oE '\becphory_engram_[a-z0-9_]+\(' \
  "$source/include/ecphory/engram.h" | tr -d '(' | sort -u)
exported=$(nm -D --defined-only "$libdir/libecphory-engram.so" |
  sed -nE 's/.* T (ecphory_engram_[a-z0-9_]+).*/\1/p' | sort -u)
[ "$declared" = "$exported" ] || fail "exported: $exported; declared: $declared"
# It is loaded late by other programs, and with its signal handler all of its
# thread-local memory comes out of the about 1.6 KiB they share for that.
tls=$(readelf -lW "$libdir/libecphory-engram.so" |
  awk '$1 == "TLS" { print $6 }')
[ "$((tls))" -le 128 ] || fail "thread-local memory: $tls bytes, expected 128"
ldd "$libdir/libecphory-engram.so" | grep -q 'libecphory\.so' &&
  fail "the memory's library needs the engine's"

echo "== let go"
# shellcheck disable=SC2046
"$cc" -std=c11 -Wall -Wextra -Werror "$source/tests/install/unload.c" \
  $(pkg-config --cflags ecphory-engram) -ldl -o "$work/unload"
if [ -f "$model" ]; then
  status=0
  "$work/unload" "$libdir/libecphory-engram.so" "$model" || status=$?
  [ "$status" = $((128 + $(kill -l BUS))) ] ||
    fail "after dlclose, SIGBUS ends the program with $status"
else
  echo "SKIPPED: $model is missing, no memory was opened"
fi

for program in "$work/examples/engram_c" "$work/engram_c"; do
  echo "== $program"
  if "$program" /nonexistent.gguf 2>"$work/error"; then
    fail "a missing table is no error"
  fi
  grep -q '^not found: .*nonexistent.gguf' "$work/error" ||
    fail "the error is: $(cat "$work/error")"
  if [ -f "$model" ]; then
    "$program" "$model" 5 6 7 >"$work/rows"
    [ "$(grep -c '^table' "$work/rows")" = 6 ] || fail "$(cat "$work/rows")"
    grep -q '^io: ' "$work/rows" || fail "no line about the way in"
    grep -qE '^[0-9]+ rows asked for' "$work/rows" || fail "no statistics"
  else
    echo "SKIPPED: $model is missing, no row was read"
  fi
done

for program in "$work/examples/generate" "$work/generate"; do
  echo "== $program"
  if "$program" /nonexistent.gguf x 2>"$work/error"; then
    fail "a missing model is no error"
  fi
  grep -q '^not found: .*nonexistent.gguf' "$work/error" ||
    fail "the error is: $(cat "$work/error")"
  if [ -f "$model" ]; then
    "$program" "$model" "lynx:" | grep -q 'stopped: ' || fail "no text"
  else
    echo "SKIPPED: $model is missing, nothing was generated"
  fi
done
