"""Export of translation models to programs that run without this package: in ONNX Runtime, or by `torch.export`."""

from .checkpoint import Exported, export_checkpoint
from .programs import EncoderProgram, StepProgram, family_of

__all__ = ["EncoderProgram", "Exported", "StepProgram", "export_checkpoint", "family_of"]
