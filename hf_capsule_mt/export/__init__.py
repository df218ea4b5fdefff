"""Export of translation models to programs that run without this package: in ONNX Runtime, or by `torch.export`."""
