"""The vocabulary of a request: what every package of the server may name, and which imports none of them."""
