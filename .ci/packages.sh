#!/usr/bin/env bash
# Installs the Debian packages named, those whose program is not there yet. Each
# argument is a package, or package:program if the two differ.
set -euo pipefail

missing=()
for each in "$@"; do
	command -v "${each#*:}" >/dev/null || missing+=("${each%%:*}")
done
if [ ${#missing[@]} -eq 0 ]; then exit 0; fi
echo "installing ${missing[*]}"
sudo=""
if [ "$(id -u)" -ne 0 ]; then sudo=sudo; fi
$sudo apt-get update -qq
$sudo apt-get install -y -qq --no-install-recommends "${missing[@]}"
