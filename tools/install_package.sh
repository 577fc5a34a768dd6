#!/usr/bin/env bash
# Installs Debian packages by name, as root: tools/install_package.sh NAME...
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
install() { apt-get install -y --no-install-recommends "$@" >"$log" 2>&1; }
# A list that is old or empty names versions that are gone: one update, then once more.
if ! install "$@"; then
  apt-get update >>"$log" 2>&1 || true
  if ! install "$@"; then
    cat "$log" >&2
    echo "could not install $*" >&2
    exit 1
  fi
fi
