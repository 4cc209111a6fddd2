"""The dataset and model initializers of a TrainJob: `initializer.py dataset|model FOLDER` downloads STORAGE_URI there.

hf://USER/REPOSITORY    by huggingface_hub, with ACCESS_TOKEN. Of a model its weights in safetensors, settings and
                        tokenizer alone. The token is for this download: it does not become the login of this machine.
s3://BUCKET/PREFIX      by opendal, with ENDPOINT, REGION, ROLE_ARN, ACCESS_KEY_ID and SECRET_ACCESS_KEY; without keys,
                        with those that AWS's own variables and files have.
file:///PATH            a copy of a file or folder of this machine.

IGNORE_PATTERNS: shell patterns with commas between them, of files that are left out. The variables, and what of a
repository is downloaded, are those of Trainer's initializers.
"""

import fnmatch
import os
import shutil
import sys
from urllib.parse import unquote, urlparse

KINDS = ("dataset", "model")
MODEL_FILES = ["*.json", "*.safetensors", "*.model", "*.txt"]
PRIVATE = ("GatedRepoError", "RepositoryNotFoundError")  # also of a private repository without a valid token
S3_OPTIONS = ("endpoint", "access_key_id", "secret_access_key", "region", "role_arn")
CHUNK = 1 << 20


class Refusal(Exception):
    """Why nothing can be downloaded, with the fix."""


def setting(name):
    return os.environ.get(name.upper(), "").strip()


def ignored_patterns():
    return [pattern.strip() for pattern in setting("ignore_patterns").split(",") if pattern.strip()]


def is_ignored(path, patterns):
    return any(fnmatch.fnmatch(path, pattern) for pattern in patterns)


def import_module(name, scheme, command):
    try:
        return __import__(name)
    except ImportError as error:
        text = "%s:// needs %s, and %s cannot import it (%s)" % (scheme, name, sys.executable, error)
        raise Refusal("%s; install it: %s -m %s" % (text, sys.executable, command))


def one_line(uri, error):
    """An error of a library; opendal's have a stack of addresses."""
    return "%s: %s: %s" % (uri.geturl(), type(error).__name__, " ".join(str(error).partition("Backtrace:")[0].split()))


def download_repository(kind, uri, folder):
    """Of Hugging Face: the first two parts of the path name it. Files that are there already stay."""
    parts = [part for part in (uri.netloc + uri.path).split("/") if part]
    if not parts:
        raise Refusal("%s names no repository; write hf://USER/REPOSITORY" % uri.geturl())
    options = {"allow_patterns": MODEL_FILES} if kind == "model" else {"repo_type": "dataset"}
    hub = import_module("huggingface_hub", uri.scheme, "pip install huggingface_hub")
    try:
        hub.snapshot_download(
            repo_id="/".join(parts[:2]),
            local_dir=folder,
            ignore_patterns=ignored_patterns() or None,
            token=setting("access_token") or None,
            **options
        )
    except Exception as error:  # of huggingface_hub, its HTTP client or the disk
        fix = "; if the repository is private or gated, set ACCESS_TOKEN to a token that may read it"
        raise Refusal(one_line(uri, error) + (fix if type(error).__name__ in PRIVATE else ""))


def download_bucket(kind, uri, folder):
    """Of S3: every object below the prefix, at its path without the prefix. The prefix `v1` is not that of `v10/a`."""
    if not uri.netloc:
        raise Refusal("%s names no bucket; write s3://BUCKET/PREFIX" % uri.geturl())
    opendal = import_module("opendal", uri.scheme, "pip install opendal")
    options = {name: setting(name) for name in S3_OPTIONS if setting(name)}
    prefix = uri.path.lstrip("/")
    try:
        bucket = opendal.Operator("s3", **{"root": "/", "bucket": uri.netloc, "region": "auto", **options})
        bucket = bucket.layer(opendal.layers.RetryLayer(max_times=3, factor=2.0, jitter=True))
        listed = [entry.path for entry in bucket.list(prefix, recursive=True) if not entry.path.endswith("/")]
        keys = [key for key in listed if not prefix.strip("/") or (key + "/").startswith(prefix.rstrip("/") + "/")]
        for key in keys:
            if not is_ignored(key, ignored_patterns()):
                path = key[len(prefix):].lstrip("/") or os.path.basename(key)
                with bucket.open(key, "rb") as source, open(target_of(folder, path), "wb") as target:
                    shutil.copyfileobj(source, target, CHUNK)
    except Refusal:
        raise
    except Exception as error:  # of opendal or the disk
        raise Refusal(one_line(uri, error))
    if not keys:
        raise Refusal("%s: nothing is there; check bucket and prefix" % uri.geturl())


def target_of(folder, path):
    """The file in the folder for a relative path, whose own folder exists. A path that leads out of it is refused."""
    target = os.path.normpath(os.path.join(folder, path))
    if not target.startswith(os.path.join(folder, "")):
        raise Refusal("%s: its path leads out of %s; rename it, or add it to IGNORE_PATTERNS" % (path, folder))
    os.makedirs(os.path.dirname(target), exist_ok=True)
    return target


def copy_files(kind, uri, folder):
    """Of this machine: a folder's content, or one file."""
    source = unquote(uri.path)
    if uri.netloc not in ("", "localhost"):
        raise Refusal("%s has no absolute path; write file:///PATH" % uri.geturl())
    if not os.path.exists(source):
        raise Refusal("%s: there is no %s; check the path" % (uri.geturl(), source))
    if (os.path.realpath(folder) + "/").startswith(os.path.join(os.path.realpath(source), "")):
        raise Refusal("%s contains %s, into which it would be copied; name another folder" % (source, folder))
    patterns = ignored_patterns()

    def ignored_names(place, names):
        paths = {name: os.path.relpath(os.path.join(place, name), source) for name in names}
        return [name for name in names if is_ignored(paths[name], patterns)]

    try:
        if os.path.isdir(source):
            shutil.copytree(source, folder, ignore=ignored_names, dirs_exist_ok=True)
        else:
            shutil.copy2(source, target_of(folder, os.path.basename(source)))
    except shutil.Error as error:  # all that could not be copied
        place, _, reason = error.args[0][0]
        raise Refusal("%s: %s: %s" % (uri.geturl(), place, reason))
    except OSError as error:
        raise Refusal("%s: %s: %s" % (uri.geturl(), error.filename or source, error.strerror))


SCHEMES = {"hf": download_repository, "s3": download_bucket, "file": copy_files}


def files_of(folder):
    """Number and bytes of the files in a folder, those that huggingface_hub keeps for itself left out."""
    sizes = [
        os.path.getsize(os.path.join(place, name))
        for place, folders, names in os.walk(folder)
        if not place.startswith(os.path.join(folder, ".cache"))
        for name in names
    ]
    return len(sizes), sum(sizes)


def initialize(kind, folder):
    text = setting("storage_uri")
    forms = "hf://USER/REPOSITORY, s3://BUCKET/PREFIX or file:///PATH"
    if not text:
        raise Refusal("STORAGE_URI is empty; set spec.initializer.%s.storageUri: %s" % (kind, forms))
    uri = urlparse(text)
    if uri.scheme not in SCHEMES:
        raise Refusal("STORAGE_URI %s: no %s comes from there on this machine; write %s" % (text, kind, forms))
    print("%s: %s to %s" % (kind, text, folder), flush=True)
    os.makedirs(folder, exist_ok=True)
    SCHEMES[uri.scheme](kind, uri, folder)
    count, size = files_of(folder)
    print("%s: %d file%s, %d bytes" % (kind, count, "" if count == 1 else "s", size), flush=True)


def main(arguments):
    if len(arguments) != 2 or arguments[0] not in KINDS:
        raise SystemExit("usage: initializer.py dataset|model FOLDER")
    try:
        initialize(arguments[0], os.path.abspath(arguments[1]))
    except Refusal as refusal:
        raise SystemExit("%s: %s" % (arguments[0], refusal))


if __name__ == "__main__":
    main(sys.argv[1:])
