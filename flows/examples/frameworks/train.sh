#!/bin/bash
# A training that reports its progress with curl, and nothing else of laxity:
#   laxity run --deadline 10m -- bash train.sh 30
#   laxity run --deadline 10m --resume-args --resume -- bash train.sh 30
steps=${1:-30}
step=0
if [ "$2" = --resume ] && [ -f state ]; then step=$(cat state); fi
trap 'echo "$step" > state; exit 0' TERM

report() {
  curl --silent --show-error --fail "$KUBEFLOW_TRAINER_SERVER_URL" \
    --header "Authorization: Bearer $(cat "$KUBEFLOW_TRAINER_SERVER_TOKEN")" \
    --data "{\"trainerStatus\": {\"progressPercentage\": $((100 * step / steps))}}"
}

while [ "$step" -lt "$steps" ]; do
  sleep 0.5
  step=$((step + 1))
  report
done
