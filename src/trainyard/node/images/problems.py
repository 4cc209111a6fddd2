"""What can be wrong with an image, in the kubelet's words for the reason and a person's words for the message."""

from __future__ import annotations

# The kubelet's reasons for a container that waits.
UNKNOWN = "ErrImageNeverPull"  # nobody has said what this image is
FAILED = "ErrImagePull"  # its environment cannot be had now; the node tries again
NO_COMMAND = "CreateContainerError"  # nothing to start


class ImageProblem(Exception):
    """An image cannot be used. `reason` is the kubelet's, `message` is one sentence or two and names the fix."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
