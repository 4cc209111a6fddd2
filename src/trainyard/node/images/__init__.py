"""Images without containers: what stands behind the name of an image on this machine.

A container image is a file system and a program. Here it is an environment (a folder of executables to put first on
PATH), an entrypoint, arguments, a working directory and variables.

Rules:
- The catalogue says which images are known. A person's own files come before the shipped one; the first match counts.
- An image without an entry is no error when the container brings a command: it runs with the person's own interpreter
  (selection.py), and so does an entry that says `current`.
- An interpreter is asked what it has by running it, in the variables of its programs: what is checked is what is used.
- An image may have files and empty folders of its own: `laid` makes them for one container.
- Environments are built once, into a folder named by their content, and appear there complete or not at all. Who runs
  programs of one holds it, so that nobody removes it (store.py).
- A problem is an `ImageProblem` whose message names the fix. The pod waits with it; nothing is tried in silence.
"""

from trainyard.node.images.catalogue import WORKING_DIRECTORY, Image
from trainyard.node.images.layout import laid
from trainyard.node.images.problems import ImageProblem
from trainyard.node.images.room import Images, Prepared

__all__ = ["WORKING_DIRECTORY", "Image", "ImageProblem", "Images", "Prepared", "laid"]
