"""Ranks and sizes of a process, how the ranks of a job connect, and collectives over sockets."""

from det_jupyter.core.ranks.gathering import connect, meet
from det_jupyter.core.ranks.link import RankEnded
from det_jupyter.core.ranks.meeting import PORT, Meeting, choose_meeting
from det_jupyter.core.ranks.programs import (
    DEEPSPEED,
    TORCHRUN,
    check_group,
    exchange_by_group,
    find_mpi_info,
    gather_mpi,
    read_horovod,
    read_rank_info,
)
from det_jupyter.core.ranks.rank_info import FIELDS, RankInfo
from det_jupyter.core.ranks.star import StarExchange, num_begun

__all__ = [
    "DEEPSPEED",
    "FIELDS",
    "PORT",
    "TORCHRUN",
    "Meeting",
    "RankEnded",
    "RankInfo",
    "StarExchange",
    "check_group",
    "choose_meeting",
    "connect",
    "exchange_by_group",
    "find_mpi_info",
    "gather_mpi",
    "meet",
    "num_begun",
    "read_horovod",
    "read_rank_info",
]
