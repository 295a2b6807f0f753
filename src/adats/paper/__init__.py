"""The paper: bounds, experiments, datasets. Nothing else depends on it."""
