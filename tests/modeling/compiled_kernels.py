"""Print how many values each loop of the kernels hands on, as compiled for a GPU; no GPU is needed for that."""

import re

from triton import compile
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from hf_capsule_mt.modeling import em_routing_kernels

SETTINGS = {"INPUTS": 4, "OUTPUTS": 4, "WIDTH": 2, "ITERATIONS": 3, "JOINT": False, "EPSILON": 1e-8}

for kernel in (em_routing_kernels._route, em_routing_kernels._route_backward):
    names = kernel.arg_names
    types = {name: "*fp32" if name.endswith("_at") else "i32" for name in names} | dict.fromkeys(SETTINGS, "constexpr")
    source = ASTSource(kernel, types, {(names.index(name),): value for name, value in SETTINGS.items()})
    code = compile(source, target=GPUTarget("cuda", 90, 32)).asm["ttir"]
    print(f"{kernel.fn.__name__}:", *re.findall(r":(\d+) = scf\.for", code))
