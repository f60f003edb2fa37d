"""Where a process is among the ranks, how ranks meet, and collectives over sockets."""

from det_jupyter.core.ranks.ended import RankEnded
from det_jupyter.core.ranks.gathering import connect, meet
from det_jupyter.core.ranks.meeting import PORT, Meeting, choose_meeting
from det_jupyter.core.ranks.place import FIELDS, Place
from det_jupyter.core.ranks.programs import (
    DEEPSPEED,
    TORCHRUN,
    check_group,
    draw_by_group,
    find_mpi_place,
    gather_mpi,
    read_horovod,
    read_place,
)
from det_jupyter.core.ranks.star import StarExchange

__all__ = [
    "DEEPSPEED",
    "FIELDS",
    "PORT",
    "TORCHRUN",
    "Meeting",
    "Place",
    "RankEnded",
    "StarExchange",
    "check_group",
    "choose_meeting",
    "connect",
    "draw_by_group",
    "find_mpi_place",
    "gather_mpi",
    "meet",
    "read_horovod",
    "read_place",
]
