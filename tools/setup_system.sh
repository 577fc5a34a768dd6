#!/usr/bin/env bash
# Installs the programs that tests run and pip does not have. Without root it names them; under CI=true a missing one is an error.
set -euo pipefail
cd "$(dirname "$0")/.."

get() { # get WHAT PACKAGE
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing $2" >&2
    tools/install_package.sh "$2" && return
  fi
  echo "missing: $1 (Debian package $2); the tests that need it will not run" >&2
  [ "${CI:-}" != true ]
}

need() { # need PROGRAM PACKAGE
  command -v "$1" >/dev/null || get "$1" "$2"
}

need kcat kcat
need zsh zsh   # completion scripts
need fish fish
need fusermount3 fuse3 # the file system that loses power (tests/chaos)
need strace strace    # system calls that fail (tests/chaos)
