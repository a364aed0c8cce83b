"""Settings, validation and launch of SageMaker jobs. Start at `launch`."""
