"""A GPU for machines without one: tensors that say that they are on it, of which a CPU computes the numbers.

What goes wrong on a GPU for where a tensor is goes wrong here: tensors of two devices in one operation, a device that
is not passed on, a generator of random numbers of the other device, memory that the host reads. So does what goes wrong
for its type: autocast lowers and raises what it does on CUDA. Reading numbers, for which a GPU is waited, is noted.
Nothing is told of kernels, streams, memory, speed, or a state of random numbers of its own.

PyTorch takes one such device, for all of a process, and takes it for the accelerator from then on.
"""

import traceback
from contextlib import contextmanager

import torch
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

aten = torch.ops.aten
NAME = "pretend"
# Operations that take tensors of both sides; of indexing only the place may be on the CPU.
_BOTH = {aten.copy_.default, aten._to_copy.default}
_INDEXING = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default}
# Operations that take no scalar of the CPU either.
_STRICT = {aten.cat.default, aten.stack.default, aten.gather.default, aten.index_select.default, aten.embedding.default}
# Operations that wait for the device. Copies to the CPU do too.
_WAITING = {aten._local_scalar_dense.default, aten.nonzero.default, aten.equal.default, aten.masked_select.default}
# Of CUDA's autocast: https://docs.pytorch.org/docs/stable/amp.html#autocast-op-reference
_LOWERED = "addbmm addmm addmv addr baddbmm bmm linear matmul mm mv _thnn_fused_lstm_cell _thnn_fused_gru_cell"
_LOWERED += " scaled_dot_product_attention"
_RAISED = "cosine_similarity cross_entropy_loss cumprod cumsum exp expm1 kl_div layer_norm log log10 log1p log2"
_RAISED += " log_softmax mse_loss nll_loss norm pow prod reciprocal rsqrt softmax softplus sum tan"
_WIDENED = "addcdiv addcmul dot index_put scatter_add"

reads = []
"""Where numbers of the device were read since the list was emptied: files with lines."""


class _Backend(backend_registration._DummyBackendModule):
    def get_amp_supported_dtype(self):
        return [torch.float16, torch.bfloat16]


class OnGpu(torch.Tensor):
    """A tensor on the device; `numbers` is on the CPU."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, numbers):
        layout = {"strides": numbers.stride(), "storage_offset": numbers.storage_offset(), "dtype": numbers.dtype}
        # In inference mode a view of a tensor from outside would have no version.
        with torch.inference_mode(False):
            tensor = torch.Tensor._make_wrapper_subclass(cls, numbers.size(), device=torch.device(NAME, 0), **layout)
        tensor.numbers = numbers
        return tensor

    @classmethod
    def __torch_dispatch__(cls, operation, types, args=(), kwargs=None):
        return _run(operation, args, kwargs or {})

    # What a class in Python cannot do otherwise.
    def tolist(self):
        _note_read()
        return self.numbers.tolist()

    def data_ptr(self):
        return self.numbers.data_ptr()

    def untyped_storage(self):
        return self.numbers.untyped_storage()

    def __reduce_ex__(self, protocol):
        """It comes back on the CPU, as with `map_location`."""
        return self.numbers.__reduce_ex__(protocol)

    def __repr__(self):
        return f"OnGpu({self.numbers})"


class _Everywhere(TorchDispatchMode):
    """Tells of operations without a tensor of the device: those that make one, and those of the CPU."""

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        return _run(operation, args, kwargs or {})


def _run(operation, args, kwargs):
    leaves = tree_leaves((args, kwargs))
    is_here = any(isinstance(leaf, OnGpu) for leaf in leaves)
    to = _target(operation, args, kwargs, is_here)
    if is_here:
        _check_devices(operation, args, kwargs)
        if to == "cpu" or operation in _WAITING:
            _note_read()
    if to == NAME and any(isinstance(leaf, torch.Generator) and leaf.device.type == "cpu" for leaf in leaves):
        raise RuntimeError(f"{operation} draws numbers for the device from a generator of the CPU")
    on_cpu = {**kwargs, "device": torch.device("cpu")} if to == NAME and kwargs.get("device") is not None else kwargs
    found = _KERNELS.get(operation, operation)(*_numbers(args), **_numbers(on_cpu))
    if to != NAME:
        return found
    found = tree_map_only(torch.Tensor, OnGpu, found)
    return return_and_correct_aliasing(operation, args, kwargs, found) if is_here else found


def _target(operation, args, kwargs, is_here):
    """The type of the device of what an operation returns."""
    if operation is aten.copy_.default:
        return args[0].device.type
    if kwargs.get("device") is not None:
        return torch.device(kwargs["device"]).type
    return NAME if is_here else "cpu"


def _check_devices(operation, args, kwargs):
    """Refuse tensors of the CPU where a GPU refuses them."""
    if operation in _BOTH:
        return
    read = (args[0], *args[2:], kwargs) if operation in _INDEXING else (args, kwargs)
    least = 0 if operation in _STRICT else 1
    strangers = [
        tuple(leaf.shape)
        for leaf in tree_leaves(read)
        if isinstance(leaf, torch.Tensor) and not isinstance(leaf, OnGpu) and leaf.dim() >= least
    ]
    strangers += [tuple(one.shape) for one in _written(operation, args, kwargs) if not isinstance(one, OnGpu)]
    if strangers:
        raise RuntimeError(f"{operation} has tensors of two devices: on the CPU are those of the shapes {strangers}")


def _written(operation, args, kwargs):
    """The tensors that an operation writes to."""
    for index, argument in enumerate(operation._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield from tree_leaves(args[index] if index < len(args) else kwargs.get(argument.name, ()))


def _numbers(tree):
    return tree_map(lambda leaf: leaf.numbers if isinstance(leaf, OnGpu) else leaf, tree)


def _note_read():
    own = [frame for frame in traceback.extract_stack() if "/torch/" not in frame.filename]
    reads.append(next((frame.filename, frame.lineno) for frame in reversed(own) if frame.filename != __file__))


def _lstm_cell(of_input, of_hidden, cell, input_bias=None, hidden_bias=None):
    gates = of_input + of_hidden
    if input_bias is not None:
        gates = gates + input_bias + hidden_bias
    enter, keep, new, leave = gates.chunk(4, 1)
    enter, keep, new, leave = enter.sigmoid(), keep.sigmoid(), new.tanh(), leave.sigmoid()
    after = keep * cell + enter * new
    return leave * after.tanh(), after, torch.cat([enter, keep, new, leave], 1)


def _lstm_cell_backward(of_hidden, of_cell, cell, after, gates, has_bias):
    enter, keep, new, leave = gates.chunk(4, 1)
    of_hidden = torch.zeros_like(cell) if of_hidden is None else of_hidden
    squashed = after.tanh()
    flow = of_hidden * leave * (1 - squashed.square())
    flow = flow if of_cell is None else flow + of_cell
    parts = [flow * new * enter * (1 - enter), flow * cell * keep * (1 - keep), flow * enter * (1 - new.square())]
    of_gates = torch.cat([*parts, of_hidden * squashed * leave * (1 - leave)], 1)
    return of_gates, flow * keep, of_gates.sum(0) if has_bias else None


def _gru_cell(of_input, of_hidden, hidden, input_bias=None, hidden_bias=None):
    if input_bias is not None:
        of_input, of_hidden = of_input + input_bias, of_hidden + hidden_bias
    (reset, update, new), (of_reset, of_update, candidate) = of_input.chunk(3, 1), of_hidden.chunk(3, 1)
    reset, update = (reset + of_reset).sigmoid(), (update + of_update).sigmoid()
    new = (new + reset * candidate).tanh()
    return new + update * (hidden - new), torch.cat([reset, update, new, hidden, candidate], 1)


def _gru_cell_backward(of_hidden, gates, has_bias):
    reset, update, new, hidden, candidate = gates.chunk(5, 1)
    of_update = of_hidden * (hidden - new) * update * (1 - update)
    of_new = of_hidden * (1 - update) * (1 - new.square())
    of_reset = of_new * candidate * reset * (1 - reset)
    inputs = torch.cat([of_reset, of_update, of_new], 1)
    states = torch.cat([of_reset, of_update, of_new * reset], 1)
    biases = (inputs.sum(0), states.sum(0)) if has_bias else (None, None)
    return inputs, states, of_hidden * update, *biases


# What PyTorch asks of GPUs alone.
_KERNELS = {
    aten._thnn_fused_lstm_cell.default: _lstm_cell,
    aten._thnn_fused_lstm_cell_backward_impl.default: _lstm_cell_backward,
    aten._thnn_fused_gru_cell.default: _gru_cell,
    aten._thnn_fused_gru_cell_backward.default: _gru_cell_backward,
    aten._pin_memory.default: torch.clone,
}


def _empty_strided(size, stride, *, dtype=None, layout=None, device=None, pin_memory=None):
    return OnGpu(torch.empty_strided(size, stride, dtype=dtype, device="cpu"))


def _copy_from(source, target, non_blocking=False):
    _numbers(target).copy_(_numbers(source))
    return target


def _lowest(dtypes):
    return torch.get_autocast_dtype(NAME)


def _float32(dtypes):
    return torch.float32


def _widest(dtypes):
    return torch.float32 if torch.float32 in dtypes else torch.get_autocast_dtype(NAME)


def _casting(operation, choose):
    """Return an operation that casts floating-point tensors of the device, as autocast has it, to what is chosen."""

    def is_cast(leaf):
        return isinstance(leaf, OnGpu) and leaf.dtype in (torch.float32, torch.float16, torch.bfloat16)

    def run(*args, **kwargs):
        with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
            dtype = choose([leaf.dtype for leaf in tree_leaves((args, kwargs)) if is_cast(leaf)])
            args, kwargs = tree_map(lambda leaf: leaf.to(dtype) if is_cast(leaf) else leaf, (args, kwargs))
            return operation(*args, **kwargs)

    return run


_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)
_library, _all_libraries = (torch.library.Library(name, "IMPL") for name in ("aten", "_"))


def install():
    """Make the device known to this process, for good."""
    backend_registration._setup_privateuseone_for_python_backend(NAME, backend_module=_Backend())
    # Weights that are moved stay the objects that they are, and tied; those that are loaded are copied as ever.
    torch.__future__.set_swap_module_params_on_conversion(True)
    torch.nn.Module.load_state_dict = _copying(torch.nn.Module.load_state_dict)
    _library.impl("empty_strided", _empty_strided, "PrivateUse1")
    _library.impl("_copy_from", _copy_from, "PrivateUse1")
    _all_libraries.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    for names, choose in ((_LOWERED, _lowest), (_RAISED, _float32), (_WIDENED, _widest)):
        for packet in (getattr(aten, name) for name in names.split()):
            for overload in packet.overloads():
                operation = getattr(packet, overload)
                if "out" not in overload and not operation._schema.is_mutable:
                    _library.impl(operation, _casting(operation, choose), "AutocastPrivateUse1")


def _copying(load_state_dict):
    def load(module, *args, **kwargs):
        torch.__future__.set_swap_module_params_on_conversion(False)
        try:
            return load_state_dict(module, *args, **kwargs)
        finally:
            torch.__future__.set_swap_module_params_on_conversion(True)

    return load


@contextmanager
def pretended():
    """Run what makes tensors on the device."""
    with _Everywhere():
        yield torch.device(NAME, 0)
