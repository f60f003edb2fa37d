"""Routes for disks: what uses their space, and freeing files that nothing refers to."""

from __future__ import annotations

import asyncio
import time

from fastapi import APIRouter, Response

from det_jupyter.contract.host import paths
from det_jupyter.contract.messages import (
    CollectedGarbage,
    CollectGarbage,
    DiskUsage,
    FreedRoom,
    RoomForecast,
)
from det_jupyter.contract.values.bounds import Whole
from det_jupyter.master.background.disk_usage import free, known_of, usage_of
from det_jupyter.master.background.disks import forecast
from det_jupyter.master.background.garbage import collect
from det_jupyter.master.http.responses import JsonResponse, new_routes
from det_jupyter.master.service.service import Service


def disk_routes(service: Service) -> APIRouter:
    """Return the routes."""
    routes = new_routes()
    one_at_a_time = asyncio.Lock()

    @routes.get("/disks", response_model=DiskUsage)
    async def usage() -> Response:
        """Return the disks and what uses their space. Reads the sizes of all files."""
        async with one_at_a_time:
            return JsonResponse(await asyncio.to_thread(usage_of, service, known_of(service)))

    @routes.post("/disks/free", response_model=FreedRoom)
    async def free_room() -> Response:
        """Delete the files that nothing refers to."""
        async with one_at_a_time:
            known = known_of(service)
            freed = await asyncio.to_thread(free, known, paths.data_dir(), time.time())
            while service.store.give_back():
                await asyncio.sleep(0)  # lets requests be served in between
            return JsonResponse(freed)

    @routes.post("/checkpoints/gc", response_model=CollectedGarbage)
    async def collect_garbage(body: CollectGarbage) -> Response:
        """Return what is not kept and what crashes have left; delete it at `paths`."""
        async with one_at_a_time:
            return JsonResponse(await collect(service, paths.data_dir(), body.paths))

    @routes.get("/experiments/{experiment_id}/room", response_model=RoomForecast)
    async def room(experiment_id: Whole) -> Response:
        """Return whether an experiment's checkpoints will fit, judged by earlier experiments."""
        experiment = service.machine.state.experiment(experiment_id)
        return JsonResponse(await asyncio.to_thread(forecast, service, experiment))

    return routes
