"""What a request does to an object: verbs, admission, metadata, lists, subresources, and the representations of an
object."""
