"""Stand-ins for the frameworks: they write down what they are asked, in the real ones' order of events."""

TORCH = """
import contextlib, sys
__version__ = "2.13.0+standin"
class cuda:
    queued, capped, current, ready = [], {}, 0, False
    @classmethod
    def _lazy_call(cls, call): cls.queued.append(call)
    @classmethod
    def init(cls):
        for call in cls.queued: call()
        cls.ready = True
    @classmethod
    def is_initialized(cls): return cls.ready
    @staticmethod
    def device_count(): return 2
    @staticmethod
    def get_device_properties(device):
        return type("Properties", (), {"total_memory": 32000 * 1024 * 1024})
    @staticmethod
    def device(index): return contextlib.nullcontext()
    @classmethod
    def set_per_process_memory_fraction(cls, fraction, device): cls.capped[device] = fraction
    @staticmethod
    def max_memory_allocated(device): return (100 + device) * 1024 * 1024
    @staticmethod
    def max_memory_reserved(device): return 200 * 1024 * 1024 + 1
sparse_coo, strided = "sparse", "strided"
class Tensor:
    device, grad, layout, requires_grad = type("Device", (), {"type": "cuda", "index": 1}), None, strided, False
    def __init__(self, mib): self.mib = mib
    def untyped_storage(self): return self
    def data_ptr(self): return id(self)
    def nbytes(self): return self.mib * 1024 * 1024
class nn:
    class Parameter(Tensor): pass
    class Module: pass
def is_tensor(value): return isinstance(value, Tensor)
model = nn.Module()
model._parameters = {"frozen": nn.Parameter(2), "trained": nn.Parameter(1), "bias": None}
model._buffers = {}
trained = model._parameters["trained"]
trained.requires_grad, trained.grad = True, Tensor(1)
class optimizer:
    hooks, param_groups = [], [{"params": [trained]}]
    state = {0: {"exp_avg": Tensor(2), "step": 1}}
    @classmethod
    def register_optimizer_step_post_hook(cls, hook): cls.hooks.append(hook)
    @classmethod
    def step(cls):
        for hook in cls.hooks: hook(cls, (), {})
sys.modules["torch.optim.optimizer"] = optimizer
"""
TENSORFLOW = """
import sys, types
class Context:
    def ensure_initialized(self): print("initialised")
context = types.ModuleType("tensorflow.python.eager.context")
context.context = lambda one=Context(): one
sys.modules[context.__name__] = context
class config:
    growth, limits = False, {}
    class experimental:
        get_memory_growth = staticmethod(lambda card: config.growth)
    list_physical_devices = staticmethod(lambda kind: [kind + ":0"])
    get_logical_device_configuration = staticmethod(lambda card: config.limits.get(card))
    LogicalDeviceConfiguration = staticmethod(lambda memory_limit: memory_limit)
    @staticmethod
    def set_logical_device_configuration(card, limits): config.limits[card] = limits
"""
