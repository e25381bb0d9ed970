"""ModelSpec: what a checkpoint directory says about a model's shape and bytes."""
