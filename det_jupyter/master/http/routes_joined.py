"""Routes with which users add, list and remove clusters whose nodes become agents."""

from __future__ import annotations

from fastapi import APIRouter, Response

from det_jupyter.contract.messages import AddCluster, ClusterStatus, RemovedCluster
from det_jupyter.master.background.clusters import Clusters
from det_jupyter.master.http.responses import JsonResponse, new_routes


def joined_cluster_routes(clusters: Clusters) -> APIRouter:
    """Return the routes."""
    routes = new_routes()

    @routes.get("/clusters", response_model=list[ClusterStatus])
    async def all_clusters() -> Response:
        """Return the clusters, with their problems."""
        return JsonResponse(clusters.statuses())

    @routes.post("/clusters", response_model=ClusterStatus)
    async def add(body: AddCluster) -> Response:
        """Connect to a cluster, and store its settings."""
        return JsonResponse(await clusters.add(body))

    @routes.delete("/clusters/{name}", response_model=RemovedCluster)
    async def remove(name: str) -> Response:
        """End a cluster's agents and the connection to it."""
        return JsonResponse(await clusters.remove(name))

    return routes
