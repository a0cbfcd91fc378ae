#!/usr/bin/env bash
# install_test.sh SOURCE BUILD CXX: an installed Ecphory works as its users
# find it: the example builds by find_package and by pkg-config, and runs.
set -euo pipefail
source=$1 build=$2 cxx=$3
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
  -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_PREFIX_PATH="$prefix" >"$work/cmake.log"
cmake --build "$work/examples"

echo "== pkg-config"
pc=$(find "$prefix" -name ecphory.pc)
# cmake --install --prefix moves the installation; the .pc names the
# configured prefix, which pkg-config can be told.
export PKG_CONFIG_PATH=${pc%/*}
flags=$(pkg-config --define-variable=prefix="$prefix" --cflags --libs ecphory)
libdir=$(pkg-config --define-variable=prefix="$prefix" --variable=libdir ecphory)
# shellcheck disable=SC2086
"$cxx" -std=c++20 -Wall -Wextra -Werror "$source/examples/generate.cc" $flags \
  "-Wl,-rpath,$libdir" -o "$work/generate"

version=$(sed -n 's/.*VERSION_STRING "\(.*\)"/\1/p' \
  "$source/include/ecphory/version.h")
[ "$(pkg-config --modversion ecphory)" = "$version" ] ||
  fail "pkg-config and version.h disagree on the version"
[ "$("$prefix/bin/ecphory" --version | head -1)" = "ecphory $version" ] ||
  fail "the tool and version.h disagree on the version"

echo "== exported symbols"
# Everything that leaves the library is the engine's own.
foreign=$(nm -DC --defined-only "$libdir/libecphory.so" |
  grep -vE ' (A|[A-Z] (typeinfo (name )?for |vtable for )?ecphory::)' || true)
[ -z "$foreign" ] || fail "foreign symbols are exported: $foreign"

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
