#!/usr/bin/env bash
# CoreDNS remembers that a name does not exist for one type of record only.
#
# What: CoreDNS 1.14.7, the DNS of Kubernetes, with the plugin `cache 30` that clusters have by default.
# Guess: NXDOMAIN is about the name (RFC 2308): once it is cached, each question about that name gets it for its time, up
# to 30 seconds, whatever type of record it asks for.
# Seen: after the name has been made, A is still answered with NXDOMAIN from the cache, and AAAA, TXT, or a type that
# nobody uses, which had not been asked for, with NOERROR: the key of the cache has the type. So the name exists for one
# resolver of a pod (getaddrinfo asks for A and AAAA) and not for the other.
# So: a pod that asks for the name of its master before it is there waits half a minute longer, and one that asks for
# another type finds out at once when the name exists.
#
# Needs Go 1.25 or newer, its module proxy and Python 3. Some minutes, most of it the build. Ends with 1 when the
# behaviour has changed.
set -euo pipefail
folder=$(mktemp -d)
server=""
trap 'kill $server 2>/dev/null || true; chmod -R u+w "$folder"; rm -rf "$folder"' EXIT
GOBIN=$folder GOFLAGS=-modcacherw CGO_ENABLED=0 go install github.com/coredns/coredns@v1.14.7
port=$((20000 + RANDOM % 10000))
zone() { # SERIAL RECORD
  printf '@ 60 IN SOA ns.cluster.local. admin.cluster.local. %s 60 60 60 30\n@ 60 IN NS ns.cluster.local.\n%s\n' "$1" "$2" \
    >"$folder/zone"
}
zone 1 "other 60 IN A 192.0.2.1"
cat >"$folder/Corefile" <<CONF
cluster.local:$port {
    bind 127.0.0.1
    cache 30
    file $folder/zone {
        reload 1s
    }
}
CONF
"$folder/coredns" -conf "$folder/Corefile" >"$folder/log" 2>&1 &
server=$!
cat >"$folder/ask.py" <<'PY'
import socket, struct, sys, time

port, folder = int(sys.argv[1]), sys.argv[2]


def ask(name, kind):
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + bytes(1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(1)
        for _ in range(50):
            try:
                client.sendto(struct.pack(">6H", 7, 256, 1, 0, 0, 0) + labels + struct.pack(">2H", kind, 1), ("127.0.0.1", port))
                return {0: "NOERROR", 3: "NXDOMAIN"}.get(client.recv(512)[3] & 15, "another code")
            except OSError:
                time.sleep(0.1)
    raise SystemExit("no answer")


print("A before the name is made:", ask("master.cluster.local", 1))
with open(folder + "/zone") as file:
    text = file.read().replace(" 1 60 60", " 2 60 60")
with open(folder + "/zone", "w") as file:
    file.write(text + "master 60 IN A 192.0.2.2\nready 60 IN A 192.0.2.3\n")
while ask("ready.cluster.local", 65000 - int(time.monotonic() * 20) % 400) != "NOERROR":  # the new zone is not read yet
    time.sleep(0.1)
answers = {kind: ask("master.cluster.local", number) for kind, number in (("A", 1), ("AAAA", 28), ("TXT", 16))}
print("after it:", ", ".join(f"{kind} {code}" for kind, code in answers.items()))
sys.exit(answers != {"A": "NXDOMAIN", "AAAA": "NOERROR", "TXT": "NOERROR"})
PY
python3 "$folder/ask.py" "$port" "$folder" || { echo "changed"; exit 1; }
