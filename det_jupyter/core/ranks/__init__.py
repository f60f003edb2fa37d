"""Where a process is among the ranks, how ranks meet, and collectives over sockets."""

from det_jupyter.core.ranks.ended import RankEnded
from det_jupyter.core.ranks.meeting import Meeting, choose_meeting, meet, secret_of
from det_jupyter.core.ranks.place import FIELDS, Place
from det_jupyter.core.ranks.programs import (
    DEEPSPEED,
    TORCHRUN,
    check_group,
    draw_secret,
    find_mpi_place,
    gather_mpi,
    read_horovod,
    read_place,
)
from det_jupyter.core.ranks.star import StarExchange

__all__ = [
    "DEEPSPEED",
    "FIELDS",
    "TORCHRUN",
    "Meeting",
    "Place",
    "RankEnded",
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
