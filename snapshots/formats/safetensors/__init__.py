"""safetensors files with PyTorch's names and layouts."""
