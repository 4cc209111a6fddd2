"""TorchTune: the command of a trainer that says only `tune run`, completed from the runtime and the job's resources."""

from __future__ import annotations

from trainyard.kinds.trainjob.pod_sets import NODE, PORT, TRAINER, Rendered
from trainyard.objects import Json

COMMAND = ["tune", "run"]
FIXED = ("output_dir", "tokenizer.path", "checkpointer.checkpoint_dir", "tokenizer.merges_file")
"""Configuration that the runtime sets, and no job."""
LORA, QUANTIZE, DORA = "model.lora_attn_modules", "model.quantize_base", "model.use_dora"


def is_used(trainer: Json) -> bool:
    """Whether the command of `spec.trainer` is to be completed."""
    return trainer.get("command") == COMMAND


def complete_command(rendered: Rendered, nodes: int, processes: int | str) -> None:
    """Append the rendezvous, the recipe, its configuration and what the runtime has fixed to the job's command."""
    several = processes > 1 if isinstance(processes, int) else rendered.gpus_per_node() > 1
    rendezvous = [f"--rdzv_endpoint={rendered.address()}:{PORT}"] if nodes > 1 or several else []
    recipe, config = recipe_and_config(rendered, nodes, processes)
    command = [*COMMAND, *rendezvous, recipe, "--config", config, *_fixed_by_runtime(rendered)]
    spec = rendered.job["spec"]
    rendered.job = {**rendered.job, "spec": {**spec, "trainer": {**spec["trainer"], "command": command}}}


def recipe_and_config(rendered: Rendered, nodes: int, processes: int | str) -> tuple[str, str]:
    """The recipe, and the name of its configuration for the model."""
    args = rendered.trainer.get("args") or []
    model = model_of(rendered.job["spec"]["runtimeRef"]["name"])
    kind = method(args)
    if nodes != 1:
        return "full_finetune_distributed", f"{model}_full" + ("_multinode" if nodes > 1 else "")
    place = "single_device" if processes == 1 or rendered.gpus_per_node() == 1 else "distributed"
    recipe = f"{'full' if kind == 'full' else 'lora'}_finetune_{place}"
    return recipe, f"{model}_{kind}" + ("_single_device" if place == "single_device" else "")


def method(args: list[str]) -> str:
    """How the model is tuned: full, lora or qlora."""
    if _is_true(args, QUANTIZE) and not _is_true(args, DORA):
        return "qlora"
    return "lora" if any(LORA in arg for arg in args) else "full"


def model_of(runtime: str) -> str:
    """The model in the name of a runtime: torchtune-llama3.2-1b is of llama3_2/1B. "" for another name."""
    parts = runtime.split("-")
    return f"{parts[1].replace('.', '_')}/{parts[2].upper()}" if len(parts) == 3 else ""


def _is_true(args: list[str], name: str) -> bool:
    pairs = (arg.partition("=") for arg in args if "=" in arg)
    return any(name in key and value.strip().lower() == "true" for key, _, value in pairs)


def _fixed_by_runtime(rendered: Rendered) -> list[str]:
    return [
        item
        for pod_set in rendered.sets
        if pod_set.ancestor == TRAINER
        for item in (pod_set.container(NODE) or {}).get("command") or ()
        if item.partition("=")[0] in FIXED
    ]
