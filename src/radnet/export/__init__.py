"""Models for other worlds: as C, as ONNX, as a program of torch.export."""

from __future__ import annotations

from .c import export_c as export_c
from .onnx import OnnxExport as OnnxExport
from .onnx import export_onnx as export_onnx
from .program import export_program as export_program

__all__ = ["OnnxExport", "export_c", "export_onnx", "export_program"]
