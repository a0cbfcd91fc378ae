# shellcheck shell=bash disable=SC2154
# Shared by ./demo and ./test: says each step, installs packages, and when a
# step fails, which one and what to do. Sourced with the repository as the
# working directory; `program` is the caller's name.

say() { printf '%s: %s\n' "$program" "$*" >&2; }

# fail STEP ADVICE
fail() {
  say "step '$1' failed."
  say "$2"
  exit 1
}

# packages GROUP...: the packages of these groups of cmake/packages.txt.
packages() {
  local group
  for group in "$@"; do
    sed -n "/^\[$group\]/,/^\[/{/^[a-z0-9]/p}" cmake/packages.txt
  done
}

installed() {
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# install_packages GROUP...: installs what is missing, saying so before.
install_packages() {
  local package missing=() as_root=()
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    say "this is no Debian system; these packages are taken as present:"
    say "$(packages "$@" | xargs)"
    return
  fi
  for package in $(packages "$@"); do
    installed "$package" || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  say "installing Debian packages: ${missing[*]}"
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || fail "install packages" \
      "Run as root: apt-get update && apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  "${as_root[@]}" apt-get update -q >&2 || fail "update package lists" \
    "Check the network and /etc/apt/sources.list, then run ./$program again."
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -q --no-install-recommends "${missing[@]}" >&2 ||
    fail "install packages" \
      "apt-get says above what is wrong; then run ./$program again."
}

# build PRESET [TARGET...]: configures once, then builds what changed.
build() {
  local preset=$1 quiet=() targets=()
  shift
  if [ ! -f "build/$preset/build.ninja" ]; then
    say "configuring (build/$preset)"
    cmake --preset "$preset" >&2 || fail "configure" \
      "CMake says above what is missing. Remove build/$preset to start afresh."
    say "building; minutes the first time"
  else
    quiet=(--quiet)
  fi
  [ $# -eq 0 ] || targets=(--target "$@")
  cmake --build --preset "$preset" "${targets[@]}" -- "${quiet[@]}" >&2 ||
    fail "build" \
      "The compiler's first error is above. Remove build/$preset to start afresh."
}
