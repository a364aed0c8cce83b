"""Image registries and Amazon ECR as services. Start at `client`."""
