"""Images without containers: how an image name becomes a Python environment on this machine.

A container image is a file system and a program. Here it is an environment (a folder of executables that is put first
on PATH), an entrypoint, arguments, a working directory and environment variables.

Rules:
- The catalogue lists the known images. The user's own files come before the shipped one; the first match counts.
- An image without an entry is no error if the container has a command: the command runs with the user's own
  interpreter (selection.py). An entry with the provider `current` uses the same interpreter.
- The modules of an interpreter are found by running it with the variables that its programs get, so the check and the
  later run see the same modules.
- An image may have files and empty folders of its own: `create_files` creates them for one container.
- An environment is built once, into a folder whose name contains a hash of its content. A rename makes the complete
  folder visible in one step. A node that runs programs of an environment holds a lock on it, so that it is not removed
  (store.py).
- A problem is an `ImageProblem` whose message names the fix. It becomes the reason and message of the waiting
  container; there is no silent fallback.
"""

from trainyard.node.images.catalogue import WORKING_DIRECTORY, Image
from trainyard.node.images.images import Images, PreparedImage
from trainyard.node.images.layout import create_files
from trainyard.node.images.problems import ImageProblem

__all__ = ["WORKING_DIRECTORY", "Image", "ImageProblem", "Images", "PreparedImage", "create_files"]
