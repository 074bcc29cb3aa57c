"""Which extended resources are GPUs."""


def is_gpu(resource: str) -> bool:
    """Extended resources such as ``nvidia.com/gpu`` and ``nvidia.com/mig-1g.5gb``."""
    vendor, _, kind = resource.partition("/")
    return bool(kind) and ("gpu" in kind or (vendor == "nvidia.com" and kind.startswith("mig-")))
