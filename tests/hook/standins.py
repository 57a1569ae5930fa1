"""Stand-ins for the frameworks: they write down what they are asked, in the real ones' order of events."""

TORCH = """
import contextlib
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
