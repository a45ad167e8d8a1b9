"""GPUs that several runs of a job share: with NVIDIA's MPS, or by time slicing."""

MPS, TIME_SLICING = "MPS", "time slicing"
SETUP = (
    'export CUDA_MPS_PIPE_DIRECTORY="/tmp/vmcjob-mps-$SLURM_JOB_ID"',
    'export CUDA_MPS_LOG_DIRECTORY="$CUDA_MPS_PIPE_DIRECTORY"',
    # The daemon numbers the GPUs that it sees anew, and would do so twice with this variable.
    'if mkdir -p -m 700 "$CUDA_MPS_PIPE_DIRECTORY" && '
    "env -u CUDA_VISIBLE_DEVICES nvidia-cuda-mps-control -d; then",
    "  trap 'echo quit | nvidia-cuda-mps-control; rm -rf \"$CUDA_MPS_PIPE_DIRECTORY\"' EXIT",
    "else",
    '  echo "vmcjob: MPS does not start on this node; runs share a GPU by time slicing" >&2',
    '  rm -rf "$CUDA_MPS_PIPE_DIRECTORY"',
    "  unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY",
    "fi",
)
"""Shell lines that start a daemon of MPS for one job, and end the daemon with the job.

The folder of its socket is below /tmp, which Apptainer shows to the worker in an image.
"""


def sharing(n_gpus: int, runs_per_job: int, *, has_mps: bool) -> str:
    """How the runs of a job share a GPU; empty if each run has a GPU of its own."""
    if not 0 < n_gpus < runs_per_job:
        return ""
    return MPS if has_mps else TIME_SLICING
