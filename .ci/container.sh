#!/usr/bin/env bash
# Builds timerd's container and uses it, where podman or buildah is installed and works, or docker
# with its daemon:
#
#	bash .ci/container.sh
#
# GO_IMAGE is another image than the Containerfile's to build with. Without a builder, or if that
# image cannot be had, the script says so and does nothing: package durable/timerd has tests of the
# Containerfile that need neither.
set -euo pipefail
cd "$(dirname "$0")/.."
file=durable/timerd/deploy/Containerfile
base=${GO_IMAGE:-$(sed -n 's/^ARG GO=//p' $file)}

builder=
for each in podman buildah docker; do
	if command -v $each >/dev/null && timeout 20 $each info >/dev/null 2>&1; then
		builder=$each
		break
	fi
done
if [ -z "$builder" ]; then
	echo "skipped: neither podman nor buildah nor docker works here"
	exit 0
fi
if [ -z "${GO_IMAGE:-}" ] && ! timeout 300 $builder pull "$base" >/dev/null 2>&1; then
	echo "skipped: $builder cannot pull $base"
	exit 0
fi

image=localhost/limbo-timerd-test volumes=()
[ $builder = docker ] || volumes=(-v "$(go env GOMODCACHE):/go/pkg/mod:ro") # saves the downloads
$builder build "${volumes[@]}" -f $file -t $image --build-arg GO="$base" --build-arg VERSION=v0.0.0-test --build-arg COMMIT=c0ffee .

token=0123456789abcdef
if [ $builder = buildah ]; then
	container=$(buildah from --pull-never $image)
	inside() { buildah run --env TIMERD_TOKEN=$token "$container" -- /timerd "$@"; }
	inside &
	server=$!
	trap 'kill $server 2>/dev/null || true; wait $server || true; buildah rm "$container" >/dev/null; buildah rmi $image >/dev/null' EXIT
	user=$(buildah inspect --format '{{.OCIv1.Config.User}}' "$container")
else
	container=$($builder run -d --stop-timeout 40 -e TIMERD_TOKEN=$token $image)
	inside() { $builder exec "$container" /timerd "$@"; }
	trap '$builder rm -f "$container" >/dev/null; $builder rmi $image >/dev/null' EXIT
	user=$($builder inspect --format '{{.Config.User}}' "$container")
fi
[ "$user" = 65532:65532 ]
inside -version | tee /dev/stderr | grep -q '^timerd v0.0.0-test, commit c0ffee, .* time zones embedded'
for _ in $(seq 100); do
	! inside -health 2>/dev/null || {
		echo "healthy"
		exit 0
	}
	sleep 0.2
done
inside -health
