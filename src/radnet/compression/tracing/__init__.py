"""From a model to its steps: by torch.fx, which follows its Python, or by torch.export, which records what runs."""
