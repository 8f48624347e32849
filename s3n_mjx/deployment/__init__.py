"""A trained policy as a file for a robot: ONNX, with all that a controller must know in it."""
