"""What stability costs: bytes, datagrams and time for every protocol, with and without its savings."""
