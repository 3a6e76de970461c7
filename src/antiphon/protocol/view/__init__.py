"""One view of a group: the data path of a member from the first datagram of the view to its end."""
