"""`python3 -m determined.launch.horovod`, which is det_jupyter's."""

import sys

from det_jupyter.launch.horovod import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
