#!/usr/bin/env bash
# Over a base image without `history` buildah builds an image over which it cannot build.
#
# What: buildah 1.28.2 of Debian 12. `history` of an image's configuration is optional (OCI image specification, "Properties").
# Guess: a base without it is refused when it is pulled, or the commit writes an entry for each layer that the base has.
# Seen: the first image is built, and has one entry of history for two layers. Over that a second one, or a second stage of
# the same Dockerfile, runs all its steps, and fails at the commit: "internal error: history lists 2 non-empty layers, but
# we have 3 layers on disk". The message names neither the base nor what it lacks.
# So: who writes a base image writes an entry of history for each layer, even an empty one.
#
# Needs root, Python 3, and apt-get and dpkg-deb with Debian 12's archive; a minute. Ends with 1 when the behaviour has
# changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
mkdir -p state/lists/partial cache/archives/partial debs tree
touch status
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
echo "deb [signed-by=$keyring] http://deb.debian.org/debian bookworm main" >sources
options="-q -o APT::Sandbox::User=root -o Dir::Cache=$folder/cache -o Dir::State=$folder/state"
options="$options -o Dir::State::status=$folder/status -o Dir::Etc::sourcelist=$folder/sources -o Dir::Etc::sourceparts=/dev/null"
apt-get $options update >/dev/null
(
	cd debs
	apt-get $options download buildah=1.28.2+ds1-3+deb12u1+b3 libassuan0=2.5.5-5 libdevmapper1.02.1=2:1.02.185-2 \
		libgpg-error0=1.46-1 libgpgme11=1.18.0-3+b1 libpcre2-8-0=10.42-1 libseccomp2=2.5.4-1+deb12u1 libselinux1=3.4-1+b6 \
		libudev1=252.39-1~deb12u2 >/dev/null
)
for package in debs/*.deb; do dpkg-deb -x "$package" tree; done
libraries=tree/usr/lib/x86_64-linux-gnu:tree/lib/x86_64-linux-gnu

python3 - <<'PY'
import hashlib, io, json, os, tarfile

FOLDER = "blobs/sha256"
TYPE = "application/vnd.oci.image."

def blob(content):
    digest = hashlib.sha256(content).hexdigest()
    with open("base/%s/%s" % (FOLDER, digest), "wb") as file:
        file.write(content)
    return {"digest": "sha256:" + digest, "size": len(content)}

os.makedirs("base/" + FOLDER)
buffer = io.BytesIO()
with tarfile.open(fileobj=buffer, mode="w") as tar:
    tar.addfile(tarfile.TarInfo("empty"), io.BytesIO())
layer = blob(buffer.getvalue())
config = {"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]}}
manifest = {
    "schemaVersion": 2,
    "mediaType": TYPE + "manifest.v1+json",
    "config": {"mediaType": TYPE + "config.v1+json", **blob(json.dumps(config).encode())},
    "layers": [{"mediaType": TYPE + "layer.v1.tar", **layer}],
}
entry = {"mediaType": TYPE + "manifest.v1+json", **blob(json.dumps(manifest).encode())}
entry["annotations"] = {"org.opencontainers.image.ref.name": "1"}
with open("base/index.json", "w") as file:
    json.dump({"schemaVersion": 2, "manifests": [entry]}, file)
with open("base/oci-layout", "w") as file:
    file.write('{"imageLayoutVersion": "1.0.0"}')
PY
printf '[storage]\ndriver = "vfs"\ngraphroot = "%s/store"\nrunroot = "%s/run"\n' "$folder" "$folder" >storage.conf
echo '{"default": [{"type": "insecureAcceptAnything"}]}' >policy.json
buildah() {
	# It starts itself again, with these variables.
	env LD_LIBRARY_PATH="$folder/${libraries//:tree/:$folder/tree}" BUILDAH_ISOLATION=chroot CONTAINERS_CONF=/dev/null \
		CONTAINERS_REGISTRIES_CONF=/dev/null CONTAINERS_STORAGE_CONF="$folder/storage.conf" TMPDIR="$folder" \
		tree/usr/bin/buildah "$@"
}
build() { buildah build --signature-policy=policy.json --pull-never -f "$1" -t "$2" . 2>&1 | tail -1; }
base=$(buildah pull -q --signature-policy=policy.json oci:base:1)
touch file
printf 'FROM %s\nCOPY file /one\n' "$base" >First
printf 'FROM localhost/first\nCOPY file /two\n' >Second
build First first >/dev/null
entries=$(buildah inspect --type image --format '{{len .OCIv1.History}} of {{len .OCIv1.RootFS.DiffIDs}}' localhost/first)
echo "the first image has history of $entries layers"
text=$(build Second second || true)
echo "the second build ends with: $text"
if [ "$entries" != "1 of 2" ] || [[ "$text" != *"history lists 2 non-empty layers, but we have 3 layers on disk"* ]]; then
	echo "changed: see above"
	exit 1
fi
