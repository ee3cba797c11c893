"""Every annotation, label, environment variable, metric and tag that laxity writes, spelled once."""

from typing import Final

DOMAIN: Final = "laxity.dev"

# --- labels of a Job (short, for selectors and `kubectl get jobs -L`) ---
MANAGED: Final = f"{DOMAIN}/managed"  # "true": laxity owns suspend, parallelism and completions
CLASS_LABEL: Final = f"{DOMAIN}/class"  # of the Job, as its annotation says
VERDICT_LABEL: Final = f"{DOMAIN}/verdict"  # promised | refused | forecast | none
KUEUE_QUEUE: Final = "kueue.x-k8s.io/queue-name"  # Jobs with this label are Kueue's, never ours
CHAIN: Final = f"{DOMAIN}/chain"  # by `laxity chain`: this Job is a link of that chain ...
CHAIN_LINK: Final = f"{DOMAIN}/chain-link"  # ... which one, counted from 1
FLOW_RUN: Final = "prefect.io/flow-run-id"  # by Prefect's worker: this flow run is the Job

# --- annotations in: what the user says ---
DEADLINE: Final = f"{DOMAIN}/deadline"  # RFC 3339, 90m from submission, or 06:00 Europe/Berlin
CLASS: Final = f"{DOMAIN}/class"  # hard | soft | best_effort
WIDTHS: Final = f"{DOMAIN}/widths"  # "1,2,4" or "1..4"
MODEL: Final = f"{DOMAIN}/model"  # key of the model's history
EPOCHS: Final = f"{DOMAIN}/epochs"  # to train in all
EPOCH_ESTIMATE: Final = f"{DOMAIN}/epoch-estimate"  # a duration: one epoch on one worker
PREEMPTIBLE: Final = f"{DOMAIN}/preemptible"  # "true" | "false"
ON_MISS: Final = f"{DOMAIN}/on-miss"  # continue | stop
WALL_LIMIT: Final = f"{DOMAIN}/wall-limit"  # a duration: so long one start may run, then the next
SAMPLES: Final = f"{DOMAIN}/samples"  # of the data set
BATCH_SIZE: Final = f"{DOMAIN}/batch-size"  # samples per step
DATASET_BYTES: Final = f"{DOMAIN}/dataset-bytes"  # read in an epoch
SIZE: Final = f"{DOMAIN}/size"  # parameters of the net
LAUNCHER: Final = f"{DOMAIN}/launcher"  # torch: workers get RANK, WORLD_SIZE, MASTER_ADDR, ...
ENTRY: Final = f"{DOMAIN}/entry"  # module:function or /path/file.py:function
PARAMETERS: Final = f"{DOMAIN}/parameters"  # JSON object
IDEMPOTENCY_KEY: Final = f"{DOMAIN}/idempotency-key"  # the same key attaches to the same job
ONE_AT_A_TIME: Final = f"{DOMAIN}/one-at-a-time"  # "true": refused while another of its flow runs
SUBMITTED_AT: Final = f"{DOMAIN}/submitted-at"  # RFC 3339; a retry keeps the first one
ATTEMPT: Final = f"{DOMAIN}/attempt"  # counted from 1
FRESH: Final = f"{DOMAIN}/fresh"  # "true": an attempt after a failure begins at epoch 0
FREEZE: Final = f"{DOMAIN}/freeze"  # "true": workers run from a copy of the code, made now
RESUMES: Final = f"{DOMAIN}/resumes"  # "true": the training code keeps and restores its own state
RESTARTS: Final = f"{DOMAIN}/restarts"  # starts in a row that may fail before the next epoch ends
GROUP: Final = f"{DOMAIN}/group"  # name of the jobs that have one deadline together
TRIAL: Final = "trial-"  # begins the steps of a sweep
STEP: Final = f"{DOMAIN}/step"  # which step of its group this job is, or is one job of
AFTER: Final = f"{DOMAIN}/after"  # "a,b": steps of its group that must have finished before
FOLLOWED_BY: Final = f"{DOMAIN}/followed-by"  # address of the flow run that submitted this job
PIN: Final = f"{DOMAIN}/pin"  # changed by hand: counted, never touched, until this is removed

# --- annotations by the service that outlast it: they stay on a Job that is released ---
TRAINING: Final = f"{DOMAIN}/training"  # JSON: the first attempt, whose folder this one goes on in
FIRST_TERMS: Final = f"{DOMAIN}/first-terms"  # JSON: annotations that were amended, as submitted

# --- annotations out: what laxity says (only laxity may write them) ---
VERDICT: Final = f"{DOMAIN}/verdict"  # JSON of the Verdict
REASON: Final = f"{DOMAIN}/reason"  # words: why it waits, was refused, was resized
PROMISED_DEADLINE: Final = f"{DOMAIN}/promised-deadline"  # RFC 3339: the one that is kept
REFUSED_DEADLINE: Final = f"{DOMAIN}/refused-deadline"  # JSON: another, refused beside a promise
PROMISED_FINISH: Final = f"{DOMAIN}/promised-finish"  # RFC 3339
P50_FINISH: Final = f"{DOMAIN}/p50-finish"  # RFC 3339
P90_FINISH: Final = f"{DOMAIN}/p90-finish"  # RFC 3339
STATUS: Final = f"{DOMAIN}/status"  # JSON: instants and counters that must survive a restart
STOP: Final = f"{DOMAIN}/stop"  # JSON: stop at the epoch's end, since when, for whom
RESIZE_TO: Final = f"{DOMAIN}/resize-to"  # workers to re-form at, at the epoch's end
NODES: Final = f"{DOMAIN}/nodes"  # JSON list: the node of each worker index
CYCLE: Final = f"{DOMAIN}/cycle"  # number of the cycle that decided last
RUN_ID: Final = f"{DOMAIN}/mlflow-run"  # EXPERIMENT/RUN
REFUSED: Final = "Refused"  # reason of the condition that ends the refused Job of a CronJob
TERM: Final = f"{DOMAIN}/term"  # of the leader that took over while the Job was acted on
SEAL: Final = f"{DOMAIN}/seal"  # keyed digests of verdict and status: without it they do not count
OUTPUTS: Final = (
    VERDICT, REASON, PROMISED_DEADLINE, REFUSED_DEADLINE, PROMISED_FINISH, P50_FINISH, P90_FINISH,
    STATUS, STOP, RESIZE_TO, NODES, CYCLE, RUN_ID, TERM, SEAL,
)  # fmt: skip

# --- annotations of a pod ---
WORKER_TOKEN: Final = f"{DOMAIN}/worker-token"  # opens what its own Job has to say
SIGNAL: Final = f"{DOMAIN}/signal"  # JSON of what its worker should do, if it does not ask

# --- environment of a worker ---
ENV_JOB: Final = "LAXITY_JOB"  # namespace/name; set means: run by laxity
ENV_JOB_UID: Final = "LAXITY_JOB_UID"  # of its Kubernetes Job
ENV_TRAINING: Final = "LAXITY_TRAINING"  # uid of the first attempt; unset: this Job is the first
ENV_INDEX: Final = "JOB_COMPLETION_INDEX"  # set by Kubernetes for Indexed Jobs; 0 is the leader
ENV_URL: Final = "LAXITY_URL"  # the service
ENV_TOKEN: Final = "LAXITY_TOKEN"  # noqa: S105 - a worker's opens the calls of its Job
ENV_CHECKPOINTS: Final = "LAXITY_CHECKPOINTS"  # the job's own folder, shared by its workers
ENV_CODE: Final = "LAXITY_CODE"  # of a frozen job: the copy of its code
ENV_POOL: Final = "LAXITY_POOL"  # set: the flow run of this pod is the Job (laxity.pool)
ENV_SIGNAL: Final = "LAXITY_SIGNAL_FILE"  # the pod's signal annotation, as the kubelet shows it
ENV_HOME: Final = "LAXITY_HOME"  # state of the embedded default, ~/.laxity if unset
ENV_EPOCHS: Final = "LAXITY_EPOCHS"  # equal units of work in all
ENV_MODEL: Final = "LAXITY_MODEL"  # key of the model's history
ENV_PARAMETERS: Final = "LAXITY_PARAMETERS"  # JSON object for the training function
ENV_LAUNCHER: Final = "LAXITY_LAUNCHER"  # torch: set RANK, WORLD_SIZE, ... before the function
ENV_ANEW: Final = "LAXITY_ANEW"  # set: this worker has begun anew, for another width
ENV_ACCELERATORS: Final = "LAXITY_ACCELERATORS"  # more names of resources, by spaces
ENV_PRODUCT_LABELS: Final = "LAXITY_GPU_PRODUCT_LABELS"  # more of nodes, by spaces; these first
ENV_SAVING_SHARE: Final = "LAXITY_SAVING_SHARE"  # of the time; 1 saves after every epoch
ENV_TRIAL: Final = "LAXITY_TRIAL"  # JSON: this worker trains a trial of a sweep
ENV_RESUMES: Final = "LAXITY_RESUMES"  # "true": the training code keeps and restores its own state
ENV_TRACKED_BY: Final = "LAXITY_TRACKED_BY"  # "service": it logs the epochs to MLflow, not workers
ENV_FLOW_RUN: Final = "LAXITY_FLOW_RUN"  # the flow run that follows the job: API/flow_runs/ID
ENV_LOG_PRINTS: Final = "LAXITY_LOG_PRINTS"  # set: print() is a line of that flow run's log, too
ENV_CHAIN_FOLDER: Final = "LAXITY_CHAIN_FOLDER"  # set: this is a link of that chain
ENV_CHAIN_LINK: Final = "LAXITY_CHAIN_LINK"  # which one, counted from 1
ENV_ENDS_AT: Final = "LAXITY_ENDS_AT"  # when the batch job is ended, seconds since 1970
ENV_POD: Final = "LAXITY_POD"  # name of the pod that a script runs in
PROGRESS: Final = "progress_percent"  # of a script's result; None where none was posted
ENV_PROGRESS_URL: Final = "KUBEFLOW_TRAINER_SERVER_URL"  # where a script posts its progress
ENV_PROGRESS_TOKEN: Final = "KUBEFLOW_TRAINER_SERVER_TOKEN"  # noqa: S105 - a file's name
ENV_POD_IP: Final = "POD_IP"  # where worker 0 listens for the others; unset: this machine only

# --- MLflow: series of one chart share a prefix and their steps (step = epoch, counted from 1) ---
EPOCH_ACTUAL: Final = "epoch_s/actual"
EPOCH_P50: Final = "epoch_s/p50"
EPOCH_P90: Final = "epoch_s/p90"
FINISH_P50: Final = "finish_s/p50"  # seconds from submission to the predicted finish
FINISH_P90: Final = "finish_s/p90"
FINISH_DEADLINE: Final = "finish_s/deadline"
LAXITY_SERIES: Final = "laxity_s"
WORKERS_SERIES: Final = "workers"
NODES_SERIES: Final = "nodes"  # that the workers lay on, where it is known
BYTES_SERIES: Final = "epoch_bytes/read"
FINAL_PREDICTED: Final = "final/pred_s"
FINAL_ACTUAL: Final = "final/actual_s"
FINAL_RUN_PREDICTED: Final = "final/run_pred_s"  # without the time that it waited or was stopped
FINAL_RUN_ACTUAL: Final = "final/run_actual_s"
FINAL_ERROR: Final = "final/abs_pct_err"  # of the run time
TAG_JOB: Final = "laxity.job"
TAG_UID: Final = "laxity.uid"
TAG_GROUP_RUN: Final = (
    "laxity.group_run"  # NAMESPACE/GROUP: the runs of its jobs are nested in this one
)
TAG_MODEL: Final = "laxity.model"
TAG_CLASS: Final = "laxity.class"
TAG_GROUP: Final = "laxity.group"  # GROUP/STEP of a job that shares a deadline with others
TAG_DEADLINE: Final = "laxity.deadline"
TAG_VERDICT: Final = "laxity.verdict"
TAG_OUTCOME: Final = "laxity.outcome"  # kept, broken, late, finished, refused, failed, cancelled
TAG_BORROWED: Final = "laxity.borrowed_gpu_h"  # GPU-hours on lent nodes; missing if there are none
TAG_STALLED: Final = "laxity.stalled"  # since when no epoch ends; "over" once one has ended
TAG_CODE_CHANGED: Final = "laxity.code_changed"  # files that were others at its first start
TAG_REASON: Final = "laxity.reason"
TAG_FLOW_RUN: Final = "laxity.flow_run"  # address of the Prefect flow run
