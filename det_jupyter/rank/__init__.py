"""The worker kernel: one rank of a gang, and the zygote that ranks are forked from."""
