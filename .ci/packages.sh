#!/usr/bin/env bash
# Installs the Debian packages named, those whose program is not there yet. Each
# argument is a package, or package:program if the two differ; or package:/path of a
# file that it has, if it has no program.
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
