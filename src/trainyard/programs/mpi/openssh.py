#!/usr/bin/env python3
"""`/usr/bin/ssh` and `/usr/sbin/sshd` of images in which MPI starts its processes with ssh: OpenSSH of this machine, with
the settings that such images have in /etc/ssh. This file stands at both paths, OpenSSH's own programs at REAL.

Rules:
- The key pair is that of the Secret which an MPIJob mounts, wherever that is. It is the host key, too. OpenSSH refuses a
  private key that others may read, so it gets a copy.
- A pod has one user id, and sshd of root wants a second one. So sshd runs in a user namespace where it is not root, with
  an /etc/passwd in which the user of this pod has that user id. Nobody else can log in.
- A session gets the variables of the image that find its programs, as if those were at the usual paths.
"""

import ctypes
import os
import pwd
import sys
import tempfile

REAL = "/usr/lib/openssh/"
SETTINGS = "/home/mpiuser/.sshd_config"  # of images in which sshd and ssh have another port than 22
PRIVATE, AUTHORIZED = "id_rsa", "authorized_keys"
SESSION_VARIABLES = ("PATH", "TMPDIR", "LD_LIBRARY_PATH")
ORDINARY_USER = 1000
NEWNS, NEWUSER, BIND = 0x00020000, 0x10000000, 0x1000
CLIENT = ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "IdentitiesOnly=yes", "LogLevel=ERROR")
SERVER = (
    "StrictModes=no", "UsePAM=no", "PasswordAuthentication=no", "KbdInteractiveAuthentication=no", "PidFile=none",
    "MaxStartups=1000",
)  # fmt: skip


def key_folder():
    """The mount with the key pair, "" where there is none."""
    with open("/proc/self/mountinfo", "rb") as file:
        points = [os.fsdecode(line.split()[4].decode("unicode_escape").encode("latin-1")) for line in file]
    for point in points:
        if all(os.path.isfile(os.path.join(point, name)) for name in (PRIVATE, AUTHORIZED)):
            return point
    return ""


def private_file(name, content):
    """A file that only this user can read; the same path for each call in a pod."""
    handle, fresh = tempfile.mkstemp()
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    target = os.path.join(tempfile.gettempdir(), name)
    os.replace(fresh, target)
    return target


def private_copy(folder):
    with open(os.path.join(folder, PRIVATE), "rb") as file:
        return private_file("mpi-ssh-key", file.read())


def client_settings():
    """A file with the port of the image's settings, which an option -p overrides."""
    ports = []
    if os.path.exists(SETTINGS):
        with open(SETTINGS, "rb") as file:
            ports = [line for line in file if line.split()[:1] == [b"Port"]]
    return private_file("mpi-ssh-config", b"".join(ports))


def options(settings):
    return [word for setting in settings for word in ("-o", setting)]


def checked(result, text):
    if result != 0:
        raise SystemExit("sshd: %s: %s" % (text, os.strerror(ctypes.get_errno())))


def leave_root():
    """Enter a user namespace in which this user is not root, and show it an /etc/passwd that says so."""
    uid, gid = os.getuid(), os.getgid()
    inner = uid or ORDINARY_USER
    try:
        user = pwd.getpwuid(uid)
    except KeyError:
        raise SystemExit("sshd: user id %d has no name on this machine, and ssh needs one; run as a named user" % uid)
    with open("/etc/passwd") as file:
        others = [line for line in file if line.split(":")[0] != user.pw_name and line.split(":")[2:3] != [str(inner)]]
    own = "%s:x:%d:%d::%s:/bin/sh\n" % (user.pw_name, inner, inner, user.pw_dir)
    with tempfile.NamedTemporaryFile("w", delete=False) as passwd:
        passwd.writelines([own, *others])
    libc = ctypes.CDLL(None, use_errno=True)
    checked(libc.unshare(NEWUSER | NEWNS), "a user namespace")
    for name, text in (("setgroups", "deny"), ("uid_map", "%d %d 1" % (inner, uid)), ("gid_map", "%d %d 1" % (inner, gid))):
        with open("/proc/self/" + name, "w") as file:
            file.write(text)
    checked(libc.mount(passwd.name.encode(), b"/etc/passwd", None, BIND, None), "its /etc/passwd")


def main(name, words):
    program, folder = REAL + name, key_folder()
    if not os.path.exists(program):
        raise SystemExit(
            "%s: pods of this network share the ports and host names of the machine, and MPI over ssh needs its own; "
            "start with --network namespace, or use MPIJob of kubeflow.org/v1, which needs no ssh" % name
        )
    if name == "ssh":
        own = ["-F", client_settings(), "-i", private_copy(folder), *options(CLIENT)] if folder else []
        os.execv(program, [program, *own, *words])
    if not folder:
        raise SystemExit("sshd: no volume has %s and %s, with which an MPIJob's launcher logs in" % (PRIVATE, AUTHORIZED))
    settings = ["HostKey=" + private_copy(folder), "AuthorizedKeysFile=" + os.path.join(folder, AUTHORIZED), *SERVER]
    session = ["%s=%s" % (key, os.environ[key]) for key in SESSION_VARIABLES if key in os.environ]
    leave_root()
    own = options([*settings, "SetEnv=" + " ".join('"%s"' % variable for variable in session)])
    own += [] if "-f" in " ".join(words) else ["-f", SETTINGS if os.path.exists(SETTINGS) else "/dev/null"]
    os.execv(program, [program, *own, *words])


if __name__ == "__main__":
    main(os.path.basename(sys.argv[0]), sys.argv[1:])
