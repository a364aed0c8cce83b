"""Settings of jobs: findings, and code for the SDKs.

| type | role |
|---|---|
| `JobDocument` | the values of a job file, with their places |
| `JobFile` | a job file of the SDK or the API |
| `GivenJob` | the settings of a command: a job file and the options that replace its values |
| `JobSpec` | a job on SageMaker, as given to `estimator`, `validate`, `launch` or `smoke --on sagemaker` |
| `TrainingRequest` | arguments of a class of the SDK or of the API, from a `JobSpec` or a `JobFile` |
| `ApiField` | a field of `create_training_job` that a setting becomes |
| `CheckedJob` | a `TrainingRequest` with its image and the findings about it |
| `Snippet` | code that sends a `CheckedJob` |
| `sagemaker.local_job.RunRequest` | a job on this machine, as given to `run` |
| `cluster.job.TrainingJob` | the hosts of a job on this machine, for `run` and for smoke checks |
| `cluster.job_report.JobReport`, `sagemaker.launch_report.LaunchReport` | the end of a job |

Start at `given_job`.
"""
