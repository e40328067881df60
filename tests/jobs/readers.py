"""Prints, as one line of JSON a process, what each reader of the launch contract makes of its environment."""

import json
import os
import sys

NAMES = sys.argv[1:]


def torch_of() -> dict:
    import torch.distributed as dist

    dist.init_process_group("gloo")
    seen = {
        "launched": dist.is_torchelastic_launched(),
        "rank": dist.get_rank(),
        "count": dist.get_world_size(),
        "local_rank": int(os.environ["LOCAL_RANK"]),
        "group_local_rank": dist.get_node_local_rank(),
    }
    dist.barrier()
    dist.destroy_process_group()
    return seen


def torchrun_of() -> dict:
    from torch.distributed import run

    config, _, _ = run.config_from_args(run.parse_args(["train.py"]))
    return {
        "backend": config.rdzv_backend,
        "endpoint": config.rdzv_endpoint,
        "nodes": (config.min_nodes, config.max_nodes),
        "node": config.rdzv_configs["rank"],
        "per_node": config.nproc_per_node,
    }


def lightning_of() -> dict:
    import lightning

    trainer = lightning.Trainer(
        accelerator="cpu", devices=2, num_nodes=2, strategy="ddp", logger=False, enable_checkpointing=False
    )
    place = trainer.strategy.cluster_environment
    return {
        "name": type(place).__name__,
        "started": place.creates_processes_externally,
        "rank": place.global_rank(),
        "count": place.world_size(),
        "local_rank": place.local_rank(),
        "node": place.node_rank(),
        "address": f"{place.main_address}:{place.main_port}",
    }


def adapter_of() -> dict:
    """What hi-ml's and Azure's adapters for Lightning do below mpi, where there is no mpi4py: that would come first."""
    from lightning.fabric.plugins.environments import mpi

    mpi._MPI4PY_AVAILABLE = False
    os.environ["MASTER_ADDR"], _, os.environ["MASTER_PORT"] = os.environ["AZ_BATCH_MASTER_NODE"].partition(
        ":"
    )
    os.environ["NODE_RANK"] = os.environ["OMPI_COMM_WORLD_RANK"]
    return lightning_of()


def accelerate_of() -> dict:
    from accelerate import PartialState

    state = PartialState(cpu=True)
    seen = {
        "rank": state.process_index,
        "count": state.num_processes,
        "local_rank": state.local_process_index,
        "kind": state.distributed_type.value,
    }
    state.wait_for_everyone()
    state.destroy_process_group()
    return seen


def transformers_of() -> dict:
    from transformers import TrainingArguments

    arguments = TrainingArguments(output_dir="outputs", use_cpu=True, report_to="none")
    seen = {
        "rank": arguments.process_index,
        "count": arguments.world_size,
        "local_rank": arguments.local_process_index,
    }
    arguments.distributed_state.wait_for_everyone()
    arguments.distributed_state.destroy_process_group()
    return seen


def jax_of() -> dict:
    import jax
    from jax._src.distributed import global_state

    jax.distributed.initialize(
        num_processes=int(os.environ["JAX_NUM_PROCESSES"]), process_id=int(os.environ["JAX_PROCESS_ID"])
    )
    seen = {
        "rank": jax.process_index(),
        "count": jax.process_count(),
        "coordinator": global_state.coordinator_address,
    }
    jax.distributed.shutdown()
    return seen


def jax_alone_of() -> dict:
    """With no arguments: below an MPI that it knows."""
    import jax

    jax.distributed.initialize()
    seen = {"rank": jax.process_index(), "count": jax.process_count()}
    jax.distributed.shutdown()
    return seen


def mpi4py_of() -> dict:
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    return {"rank": world.rank, "count": world.size, "total": world.allreduce(world.rank)}


def guide_of() -> dict:
    """What scripts for Azure's mpi distribution do before they call PyTorch, whichever names are there already."""
    import torch.distributed as dist

    rank, count = os.environ["OMPI_COMM_WORLD_RANK"], os.environ["OMPI_COMM_WORLD_SIZE"]
    several = os.environ["OMPI_COMM_WORLD_LOCAL_SIZE"] != count
    if several:
        address, _, _ = os.environ["AZ_BATCH_MASTER_NODE"].partition(":")
    else:
        address = os.environ["AZ_BATCHAI_MPI_MASTER_NODE"]
    # Such scripts fail here when it is not there, and then exclude the loopback.
    interface, os.environ["NCCL_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"], "^docker0,lo"
    os.environ |= {"RANK": rank, "WORLD_SIZE": count, "MASTER_ADDR": address}
    dist.init_process_group("gloo")
    seen = {
        "rank": dist.get_rank(),
        "count": dist.get_world_size(),
        "address": address,
        "interface": interface,
    }
    dist.barrier()
    dist.destroy_process_group()
    return seen


def deepspeed_of() -> dict:
    """By its own function for Azure, as if the torch names were not there; and then for real."""
    import deepspeed
    from deepspeed.comm.comm import patch_aml_env_for_torch_nccl_backend

    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR")
    given = {name: os.environ.pop(name) for name in names}
    patch_aml_env_for_torch_nccl_backend(verbose=False)
    found = {name: os.environ[name] for name in names}
    os.environ |= given
    deepspeed.init_distributed()
    seen = {"found": found, "given": given, "rank": deepspeed.comm.get_rank()}
    deepspeed.comm.barrier()
    deepspeed.comm.destroy_process_group()
    return seen


for name in NAMES:
    seen = globals()[f"{name}_of"]()
    # One write: processes of a node may share a log.
    sys.stdout.write(json.dumps({"reader": name, "seen": seen, "environment": dict(os.environ)}) + "\n")
    sys.stdout.flush()
