"""Language models: their configuration, files and tokenizers."""
