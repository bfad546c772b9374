"""From the journal to MLflow. The only importer of mlflow; nothing here is ever waited for by training."""
