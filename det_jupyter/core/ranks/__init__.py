"""Where a process is among the ranks, how ranks meet, and collectives over sockets."""

from det_jupyter.core.ranks.meeting import (
    Meeting,
    choose_meeting,
    meet,
    secret_of,
)
from det_jupyter.core.ranks.place import Place
from det_jupyter.core.ranks.programs import gather_mpi, read_horovod
from det_jupyter.core.ranks.star import StarExchange
from det_jupyter.core.ranks.torch_group import check_group, draw_secret
from det_jupyter.core.ranks.variables import DEEPSPEED, TORCHRUN, find_mpi_place, read_place

__all__ = [
    "DEEPSPEED",
    "TORCHRUN",
    "Meeting",
    "Place",
    "StarExchange",
    "check_group",
    "choose_meeting",
    "draw_secret",
    "find_mpi_place",
    "gather_mpi",
    "meet",
    "read_horovod",
    "read_place",
    "secret_of",
]
