"""SPANet: its event files as topologies, its HDF5 files as a format, its ONNX files as an engine."""
