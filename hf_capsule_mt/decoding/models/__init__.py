"""The decoders of all families of models, one file a family. base.py is the base of all."""

from .base import Adapter
from .m2m_and_mbart import M2M100Adapter, MBartAdapter
from .recurrent import CapsNMTAdapter, RNMTAdapter
from .t5 import MT5Adapter, T5Adapter
from .transformer import MarianAdapter

ADAPTERS: tuple[type[Adapter], ...] = (
    MarianAdapter,
    M2M100Adapter,
    MBartAdapter,
    T5Adapter,
    MT5Adapter,
    RNMTAdapter,
    CapsNMTAdapter,
)
"""Those of all families."""
