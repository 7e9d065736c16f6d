"""safetensors, with PyTorch's names and layouts."""
