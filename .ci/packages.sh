#!/usr/bin/env bash
# Installs those of the named Debian packages whose program is missing. Each argument is a
# package, or package:program if the two differ, or package:/path of one of its files if
# it has no program.
set -euo pipefail

missing=()
for each in "$@"; do
	needed=${each#*:}
	command -v "$needed" >/dev/null || [[ $needed == /* && -e $needed ]] || missing+=("${each%%:*}")
done
if [ ${#missing[@]} -eq 0 ]; then exit 0; fi
echo "installing ${missing[*]}"
sudo=""
if [ "$(id -u)" -ne 0 ]; then sudo=sudo; fi
$sudo apt-get update -qq
$sudo apt-get install -y -qq --no-install-recommends "${missing[@]}"
